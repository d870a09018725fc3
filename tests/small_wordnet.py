"""WordNet's files with a few words."""

from __future__ import annotations

from pathlib import Path


def small_wordnet(folder: Path) -> Path:
    """WordNet's files with a few words: (lemma, part) -> synsets, each written where the index says."""
    folder.mkdir()
    synsets = {
        "noun": [["movie", "film", "motion_picture"], ["man", "adult_male"], ["church", "Church"]],
        "verb": [["run", "scarper"], ["love", "enjoy"]],
        "adj": [["good", "galore(ip)"], ["big", "large"]],
        "adv": [["well", "good"]],
    }
    letters = {"noun": "n", "verb": "v", "adj": "a", "adv": "r"}
    for part, groups in synsets.items():
        letter = letters[part]
        content, index = "  1 licence\n", dict[str, list[int]]()
        for words in groups:
            for word in words:
                index.setdefault(word.partition("(")[0].lower(), []).append(len(content))
            fields = " ".join(f"{word} 0" for word in words)
            content += f"{len(content):08d} 05 {letter} {len(words):02x} {fields} 000 | a gloss\n"
        (folder / f"data.{part}").write_text(content)
        lines = [
            f"{lemma} {letter} {len(offsets)} 1 @ {len(offsets)} 0 {' '.join(f'{o:08d}' for o in offsets)}\n"
            for lemma, offsets in sorted(index.items())
        ]
        (folder / f"index.{part}").write_text("  1 licence\n" + "".join(lines))
        (folder / f"{part}.exc").write_text({"verb": "ran run\n", "noun": "men man\n"}.get(part, ""))
    return folder
