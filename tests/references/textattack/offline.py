"""Makes `import textattack` work without a network, flair and torchaudio. Import this module first.

TextAttack 0.3.11 imports flair at the top, for tags that none of the recorded recipes asks for
(shared/utils/strings.py:4, shared/attacked_text.py:15, constraints/grammaticality/part_of_speech.py:6).
The module of that name made here has the names and none of the functions: whatever calls it fails.

Run as a program, it puts what NLTK reads into the environment: Debian's WordNet 3.0, and stop words.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from types import ModuleType

HERE = Path(__file__).parent
DATA = Path(sys.prefix) / "nltk_data"  # one of the places where NLTK looks
WORDNET = Path("/usr/share/wordnet")
# The file `lexnames`, which Debian has as a manual page only (lexnames.5WN).
LEXICOGRAPHER_FILES = """adj.all adj.pert adv.all noun.Tops noun.act noun.animal noun.artifact noun.attribute
noun.body noun.cognition noun.communication noun.event noun.feeling noun.food noun.group noun.location
noun.motive noun.object noun.person noun.phenomenon noun.plant noun.possession noun.process noun.quantity
noun.relation noun.shape noun.state noun.substance noun.time verb.body verb.change verb.cognition
verb.communication verb.competition verb.consumption verb.contact verb.creation verb.emotion verb.motion
verb.perception verb.possession verb.social verb.stative verb.weather adj.ppl"""


def _without_flair() -> None:
    flair, data, models = (ModuleType(name) for name in ("flair", "flair.data", "flair.models"))
    data.Tokenizer = type("Tokenizer", (), {})  # type: ignore[attr-defined]
    data.Sentence = type("Sentence", (), {})  # type: ignore[attr-defined]
    models.SequenceTagger = type("SequenceTagger", (), {})  # type: ignore[attr-defined]
    flair.data, flair.models = data, models  # type: ignore[attr-defined]
    sys.modules.update({module.__name__: module for module in (flair, data, models)})


def _without_torchaudio() -> None:
    # fairseq asks for it, and its wheel on PyPI, made for CUDA, ends transformers' import on other machines.
    sys.modules["torchaudio"] = None  # type: ignore[assignment]


def _without_downloads() -> None:
    import nltk

    nltk.download = lambda *args, **options: True
    os.environ.setdefault("TA_CACHE_DIR", str(Path(sys.prefix) / "textattack_cache"))
    os.environ.setdefault("HF_HUB_OFFLINE", "1")


def install_data() -> None:
    """Writes `DATA`. Raises SystemExit where Debian's WordNet is missing."""
    if not (WORDNET / "index.sense").is_file():
        raise SystemExit(
            f"error: {WORDNET}/index.sense is missing: apt install wordnet-base wordnet-sense-index"
        )
    os.umask(0o022)  # NLTK refuses data that others may write
    shutil.rmtree(DATA, ignore_errors=True)
    wordnet = Path(shutil.copytree(WORDNET, DATA / "corpora/wordnet"))
    names = LEXICOGRAPHER_FILES.split()
    kind = {"noun": 1, "verb": 2, "adj": 3, "adv": 4}
    lines = [f"{i:02d}\t{name}\t{kind[name.split('.')[0]]}\n" for i, name in enumerate(names)]
    (wordnet / "lexnames").write_text("".join(lines))
    (DATA / "corpora/stopwords").mkdir()
    shutil.copy(HERE / "stopwords.txt", DATA / "corpora/stopwords/english")


if __name__ == "__main__":
    install_data()
else:
    _without_flair()
    _without_torchaudio()
    _without_downloads()
