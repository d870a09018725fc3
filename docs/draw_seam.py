"""Draws seam.svg for how-it-works.md: who calls whom in one FreeLB update, traced in fairseq's own trainer.

    python docs/draw_seam.py [OUT]        default: docs/seam.svg

Order, callers and lanes are those of a real update of the smallest model of ``tests/support.py``. A function
that is listed here and not called any more is an error.
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PASSES = 2

# Lanes from left to right: title, colour, and the folders whose functions belong to it.
LANES = (
    ("fairseq", "#57606a", ("fairseq/trainer.py", "fairseq/tasks/", "fairseq/optim/")),
    ("method", "#3949ab", ("fairseq_adv/criterions/", "fairseq_adv/perturbation/algorithms.py")),
    ("objective", "#00796b", ("fairseq_adv/objectives/",)),
    ("encoder", "#57606a", ("fairseq/models/",)),
    ("perturbation", "#c2410c", ("fairseq_adv/perturbation/",)),
)
# What is drawn: file and function, the code as the caller writes it, what happens.
CALLS = {
    ("fairseq_adv/criterions/method.py", "train_step"): ("task.train_step(…)", "bound once"),
    ("fairseq_adv/criterions/freelb.py", "adversarial_step"): ("adversarial_step(batch)", ""),
    ("fairseq_adv/perturbation/passes.py", "loss"): ("each.loss()", "one set of dropout masks"),
    ("fairseq_adv/objectives/sentence_prediction.py", "predict"): ("objective.predict(…)", ""),
    ("fairseq/models/roberta/model.py", "forward"): ("model(…)", ""),
    ("fairseq_adv/perturbation/embeddings.py", "add_delta"): ("hook", "X + δ"),
    ("fairseq_adv/objectives/sentence_prediction.py", "loss"): ("objective.loss(…)", ""),
    ("fairseq_adv/perturbation/passes.py", "backward"): ("each.backward(loss / K)", ""),
    ("fairseq/optim/fairseq_optimizer.py", "backward"): ("optimizer.backward(…)", ""),
    ("fairseq_adv/perturbation/embeddings.py", "ascend"): ("delta.ascend(α)", "a step uphill, projected"),
    ("fairseq/optim/fairseq_optimizer.py", "step"): ("optimizer.step()", "one for all passes"),
}
WITHIN_A_LANE = {"adversarial_step", "step"}  # drawn where caller and function share a lane
SEAM = ("fairseq_adv/criterions/method.py", "train_step")
FIRST_OF_A_PASS = ("fairseq_adv/perturbation/passes.py", "loss")

Function = tuple[str, str]  # file, name
CENTRES = (95, 345, 575, 735, 905)
WIDTH, HEAD, ROW = 1000, 112, 30
BAND = "#f3f4fb"
MONO = "ui-monospace,SFMono-Regular,Menlo,Consolas,monospace"


@dataclass
class Arrow:
    """A call, or the return of :data:`SEAM`.

    Attributes:
        source: lane of the caller.
        target: lane of the function.
        function: file and name.
        caller: the file of the caller.
        returns: the function's end is meant.
    """

    source: int
    target: int
    function: Function
    caller: str
    returns: bool = False


@cache
def place(code: CodeType) -> tuple[int, Function] | None:
    """A function's lane, file and name; ``None`` outside all lanes."""
    path = Path(code.co_filename).as_posix()
    for lane, (_, _, folders) in enumerate(LANES):
        for folder in folders:
            if f"/{folder}" in path:
                return lane, (path[path.rindex(f"/{folder}") + 1 :], code.co_name)
    return None


def traced_update() -> list[Arrow]:
    """The calls between lanes, of :data:`CALLS`, in one FreeLB update of ``PASSES`` passes."""
    sys.path.insert(0, str(ROOT / "tests"))
    from support import batch, build, train_args, write_task

    arrows: list[Arrow] = []

    def trace(frame: FrameType, event: str, value: Any) -> None:
        here = place(frame.f_code) if event in ("call", "return") else None
        if here is None or here[1] not in CALLS or (event == "return" and here[1] != SEAM):
            return
        above, caller = frame.f_back, None
        while above is not None and caller is None:
            caller = place(above.f_code)
            above = above.f_back
        if caller is None or (caller[0] == here[0] and here[1][1] not in WITHIN_A_LANE):
            return
        ends = (caller[0], here[0]) if event == "call" else (here[0], caller[0])
        arrows.append(Arrow(*ends, here[1], caller[1][0], event == "return"))

    with tempfile.TemporaryDirectory() as folder:
        sizes = ["--adv-lr", "0.3", "--adv-max-norm", "0.5", "--adv-init-mag", "0.4"]
        arguments = train_args(
            write_task(Path(folder)), None, "freelb", "--adv-steps", str(PASSES), *sizes
        )  # fmt: skip
        run = build(arguments)
        samples = [batch(run, [0, 1, 2])]
        run.trainer.train_step(samples)  # torch imports a lot in its first update
        before = sys.getprofile()
        sys.setprofile(trace)
        try:
            run.trainer.train_step(samples)
        finally:
            sys.setprofile(before)
    missing = set(CALLS) - {arrow.function for arrow in arrows}
    if missing:
        raise ValueError(
            f"the update does not call {sorted(missing)}: has it moved? Change CALLS and the page"
        )
    return arrows


def drawn(arrows: list[Arrow]) -> str:
    """The picture, as SVG."""
    height = HEAD + ROW * len(arrows) + 34
    starts = [row for row, arrow in enumerate(arrows) if arrow.function == FIRST_OF_A_PASS]
    end = next(row for row, arrow in enumerate(arrows) if arrow.returns)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui,-apple-system,Segoe UI,Helvetica,Arial,sans-serif" '
        'font-size="12.5">',
        f"<title>One FreeLB update of {PASSES} passes</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
    ]
    for number, start in enumerate(starts):
        last = starts[number + 1] if number + 1 < len(starts) else end
        top = HEAD + ROW * start - 9
        parts += [
            f'<rect x="212" y="{top}" width="{WIDTH - 224}" height="{ROW * (last - start) - 4}" rx="6" '
            f'fill="{BAND}"/>',
            f'<text x="224" y="{top + 19}" fill="#3949ab" font-weight="600">'
            f"pass {number + 1} of {len(starts)}</text>",
        ]
    for lane, (title, colour, _) in enumerate(LANES):
        files = {arrow.function[0] for arrow in arrows if arrow.target == lane and not arrow.returns}
        files |= {arrow.caller for arrow in arrows if arrow.source == lane and not lane}
        folder, names = described(files)
        parts += [
            f'<line x1="{CENTRES[lane]}" y1="66" x2="{CENTRES[lane]}" y2="{height - 14}" stroke="{colour}" '
            'stroke-opacity="0.35" stroke-width="1.5"/>',
            f'<rect x="{CENTRES[lane] - 77}" y="14" width="154" height="70" rx="6" fill="{colour}"/>',
            f'<g fill="#ffffff" text-anchor="middle"><text x="{CENTRES[lane]}" y="36" font-size="14.5" '
            f'font-weight="600">{title}</text><text x="{CENTRES[lane]}" y="55" font-size="11" '
            f'font-family="{MONO}">{folder}</text><text x="{CENTRES[lane]}" y="73" font-size="10.5">'
            f"{escape(names)}</text></g>",
        ]
    for row, arrow in enumerate(arrows):
        code, note = CALLS[arrow.function]
        if arrow.returns:
            code, note = "loss, sample size, log", ""
        behind = BAND if starts[0] <= row < end else "#ffffff"
        parts += drawn_arrow(arrow, HEAD + ROW * row + 12, code, note, behind)
    return "\n".join([*parts, "</svg>", ""])


def described(files: set[str]) -> tuple[str, str]:
    """The folder of a lane's files and their names in it, below its title."""
    if all(name.startswith("fairseq_adv/") for name in files):
        return min(files).split("/")[1] + "/", ", ".join(sorted(name.split("/")[-1] for name in files))
    parts = sorted(name.split("/")[1:] for name in files)
    return "fairseq/", ", ".join("/".join([*names[:-1], ""]) if names[:-1] else names[0] for names in parts)


def drawn_arrow(arrow: Arrow, y: int, code: str, note: str, behind: str) -> list[str]:
    """An arrow with its label above it, near its start."""
    colour = LANES[arrow.target][1] if not arrow.returns else LANES[arrow.source][1]
    x1, x2 = CENTRES[arrow.source], CENTRES[arrow.target]
    right = x2 >= x1
    dash = ' stroke-dasharray="5 4"' if arrow.returns else ""
    if x1 == x2:  # a call within the lane
        path = f"M{x1} {y - 8} h22 v12 h-15"
        tip, label_x, anchor = f"{x1 + 2},{y + 4} {x1 + 10},{y} {x1 + 10},{y + 8}", x1 + 30, "start"
        label_y = y + 2
    else:
        side = 1 if right else -1
        path = f"M{x1} {y} H{x2 - 8 * side}"
        tip = f"{x2},{y} {x2 - 9 * side},{y - 4} {x2 - 9 * side},{y + 4}"
        label_x, anchor, label_y = x1 + 9 * side, "start" if right else "end", y - 5
    place = f'x="{label_x}" y="{label_y}" text-anchor="{anchor}"'
    shown = f'<tspan font-family="{MONO}" font-size="12">{escape(code)}</tspan>'
    if note:
        shown += f'<tspan fill="#57606a" dx="8">{escape(note)}</tspan>'
    return [
        f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dash}/>',
        f'<polygon points="{tip}" fill="{colour}"/>',
        # Drawn twice, the outline first: not every viewer knows paint-order.
        f'<text {place} fill="{behind}" stroke="{behind}" stroke-width="4">{shown}</text>',
        f'<text {place} fill="#1f2328">{shown}</text>',
    ]


if __name__ == "__main__":
    out = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "seam.svg"
    out.write_text(drawn(traced_update()), encoding="utf-8")
    print(out)
