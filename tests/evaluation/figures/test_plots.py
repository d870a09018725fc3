"""What the figures show, read from matplotlib's own objects, and the files that they become."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import pytest
from support import without_matplotlib

pytest.importorskip("matplotlib", reason="needs matplotlib: pip install 'fairseq_adv[plots]'")

from fairseq_adv.evaluation.figures import plots
from fairseq_adv.evaluation.figures.accordance_curve import Curve, FloodStart, Measurement
from fairseq_adv.evaluation.figures.flood_levels import LevelScores
from fairseq_adv.evaluation.figures.gaussian_noise import NoiseCurve

PNG = b"\x89PNG\r\n\x1a\n"


def curve(*cosines: float, start: FloodStart | None = None) -> Curve:
    """Measured every 10 updates; the training loss falls from 0.9 by 0.1."""
    measured = [
        Measurement(10 * i, 1 - 0.1 * i, {"all": value, "head": -1.0}) for i, value in enumerate(cosines, 1)
    ]
    return Curve("a run", measured, [(15, 0.8), (30, 0.7)], "mean of something", start)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are saved, as they are saved."""
    found: list[Any] = []
    save = plots._save

    def kept(figure: Any, out: Path) -> None:
        found.append(figure)
        save(figure, out)

    monkeypatch.setattr(plots, "_save", kept)
    return found


def lines(axes: Any) -> dict[str, list[tuple[float, float]]]:
    """The points of each line in the legend."""
    named = [one for one in axes.get_lines() if not one.get_label().startswith("_")]
    return {one.get_label().replace("\n", " "): [tuple(xy) for xy in one.get_xydata()] for one in named}


def labels(axes: Any) -> list[str]:
    return [text.get_text().replace("\n", " ") for text in axes.get_legend().get_texts()]


def test_the_accordance_with_its_crossings_and_the_range(drawn: list[Any], tmp_path: Path) -> None:
    out = tmp_path / "new" / "figure.png"
    plots.draw_accordance(curve(-0.5, -0.1, 0.2, -0.3, start=FloodStart(30, 0.7)), out)
    top, bottom = drawn[0].axes
    assert lines(top)["all parameters"] == [(10, -0.5), (20, -0.1), (30, 0.2), (40, -0.3)]
    assert lines(top)["head"] == [(10, -1), (20, -1), (30, -1), (40, -1)]
    loss = lines(bottom)["training loss, mean of something"]
    assert loss == [(10, 0.9), (20, 0.8), (30, pytest.approx(0.7)), (40, 0.6)]
    assert lines(bottom)["dev loss"] == [(15, 0.8), (30, 0.7)]
    assert lines(top)["crosses zero up (all)"] == [(30, 0)]
    assert lines(top)["crosses zero down (all)"] == [(40, 0)]
    assert "range for b: 0.7 to 0.8 nats" in labels(bottom)
    assert "b = 0.7 nats, flooded from update 30 on" in labels(bottom)
    for axes in (top, bottom):  # the first crossing alone is drawn through both
        assert [tuple(one.get_xdata()) for one in axes.get_lines() if list(one.get_ydata()) == [0, 1]] == [
            (30, 30)
        ]
    span = next(one for one in top.patches if one.get_label().startswith("sub-epoch"))
    assert (span.get_extents().width > 0) and top.get_title() == "a run"
    assert bottom.get_xlabel() == "updates" and "nats" in bottom.get_ylabel()


def test_only_crossings_asked_for_are_marked_and_none_is_said(drawn: list[Any], tmp_path: Path) -> None:
    plots.draw_accordance(curve(-0.5, -0.1, 0.2, -0.3), tmp_path / "a.png", direction="down")
    plots.draw_accordance(curve(-0.5, -0.1, 0.2, -0.3), tmp_path / "b.png", group="head")
    down, none = (figure.axes[0] for figure in drawn)
    assert lines(down)["crosses zero down (all)"] == [(40, 0)] and "crosses zero up (all)" not in lines(down)
    assert not [name for name in lines(none) if name.startswith("crosses")]
    assert none.get_title() == "a run: no crossing (head)"
    assert "range for b: 0.6 to 0.7 nats" in labels(drawn[0].axes[1])
    assert labels(drawn[1].axes[1]) == ["training loss, mean of something", "dev loss"]


def test_hundreds_of_measurements_have_no_markers(drawn: list[Any], tmp_path: Path) -> None:
    for count in (60, 61):
        plots.draw_accordance(curve(*[-0.1] * count), tmp_path / "a.png")
    few, many = (figure.axes[0].get_lines()[1] for figure in drawn)
    assert few.get_marker() == "o" and many.get_marker() == "None"


def test_the_levels_with_their_spread_and_those_that_were_found(drawn: list[Any], tmp_path: Path) -> None:
    levels = [
        LevelScores(0, False, (60.0,), ("a",)),
        LevelScores(0.1, False, (70.0, 74.0), ("b", "c")),
        LevelScores(0.2, True, (66.0,), ("d",)),
    ]
    plots.draw_levels(levels, "mcc", "best", tmp_path / "a.png")
    (axes,) = drawn[0].axes
    assert lines(axes)["given level: mean"] == [(0, 60), (0.1, 72)]
    assert lines(axes)["--flood-level auto: a run each (0: no crossing)"] == [(0.2, 66)]
    (spread,) = axes.collections
    assert [segment.tolist() for segment in spread.get_segments()] == [
        [[0, 60], [0, 60]],
        [[0.1, 70], [0.1, 74]],
    ]
    assert axes.get_ylabel() == "dev mcc, best epoch" and "nats" in axes.get_xlabel()
    plots.draw_levels([levels[0], levels[2]], "mcc", "best", tmp_path / "a.png")
    assert len(labels(drawn[1].axes[0])) == 2 and not drawn[1].axes[0].collections


def test_noise_has_a_line_for_each_checkpoint(drawn: list[Any], tmp_path: Path) -> None:
    curves = [NoiseCurve(f"run {i}", [(0.0, 0.5), (0.1, 0.5 + i)]) for i in range(9)]
    plots.draw_noise(curves, "valid", tmp_path / "a.png")
    (axes,) = drawn[0].axes
    assert lines(axes) == {f"run {i}": [(0, 0.5), (0.1, 0.5 + i)] for i in range(9)}
    looks = {(one.get_color(), one.get_linestyle(), one.get_marker()) for one in axes.get_lines()}
    assert len(looks) == 9


def test_the_file_is_a_png_that_appears_whole(tmp_path: Path) -> None:
    out = tmp_path / "a.png"
    plots.draw_accordance(curve(-0.5, 0.5), out)
    content = out.read_bytes()
    assert content.startswith(PNG) and content.rstrip().endswith(b"IEND\xaeB`\x82")
    width, height = (int.from_bytes(content[i : i + 4], "big") for i in (16, 20))
    assert (width, height) == (1275, 975)
    assert os.listdir(tmp_path) == ["a.png"]

    def failing(file: BinaryIO, **_: Any) -> None:
        file.write(PNG)
        raise OSError("no space")

    broken = SimpleNamespace(savefig=failing)
    with pytest.raises(OSError, match="no space"):
        plots._save(broken, out)
    assert out.read_bytes() == content and os.listdir(tmp_path) == ["a.png"]


def test_without_matplotlib_it_is_said_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_matplotlib(monkeypatch)
    with pytest.raises(
        plots.NoMatplotlib, match=r"no figure was drawn: that needs matplotlib\..*'\.\[plots\]'"
    ):
        plots.draw_noise([], "valid", tmp_path / "a.png")
