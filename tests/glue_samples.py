"""GLUE files with awkward rows, and a small real byte-level BPE to encode them with."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, Sequence

from hf_encoders import save_tokenizer
from support import write_encoder

MNLI_TEST = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\tsentence1_parse\t"
    "sentence2_parse\tsentence1\tsentence2"
)
MNLI_TRAIN = MNLI_TEST + "\tlabel1\tgold_label"
MNLI_DEV = MNLI_TEST + "\tlabel1\tlabel2\tlabel3\tlabel4\tlabel5\tgold_label"
STSB_TEST = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"

# What a csv reader, str.splitlines, a tokenizer with control tokens, or a Unicode table could get wrong.
AWKWARD = [
    'He said "no" and left .',
    '"An opening quote that never ends',
    "two  spaces   here, and none",
    "  blanks around it \u00a0",
    "",
    "   ",
    "\u00a0",
    "a no-break\u00a0space and a thin\u2009one",
    "an ideographic\u3000space",
    "emoji \U0001f600 \U0001f468‍\U0001f469‍\U0001f467 and a new one \U0001fae8",
    "<|endoftext|> is text, <s> and </s> and <unk> too",
    "[CLS] [SEP] [MASK] [UNK]",
    "line\u2028and paragraph\u2029separators, next\x85line",
    "form\x0cfeed, vertical\x0btab, file\x1cgroup\x1drecord\x1eunit\x1fseparators",
    "\x1c leading and trailing separators \x85",
    "naïve café — “quoted” … €5 ½ x² Ⅷ",
    "e\u0301 combining, soft\u00adhyphen, zero\u200bwidth, \ufeffbyte order mark",
    "Привет мир! 你好，世界。 こんにちは 안녕 สวัสดี नमस्ते שלום مرحبا",
    "numerals ١٢٣ ௧ 𝟙 and letters 𝔸 ꟊ 𞤀",
    "don't we'll I'd they're CAN'T I'M we've",
    "a\\tb \\n & < > ' ` ´",
    "0",
    "-",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbb zzzzzzzzzzzzzzzzzzzzzzzzzz",
    "http://example.org/~a_b?c=d&e=%20#f",
    "The committee, which had met twice before, agreed at last to publish the whole report.",
]


def write(path: Path, lines: Sequence[str], end: str = "\n", last: bool = True) -> Path:
    """Writes lines byte for byte; ``last``: whether the last line has an end too."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes((end.join(lines) + (end if last else "")).encode("utf-8"))
    return path


def pairs(count: int = len(AWKWARD), shift: int = 5) -> list[tuple[str, str]]:
    """Awkward sentences, each with another."""
    rows = [AWKWARD[i % len(AWKWARD)] for i in range(count + shift)]
    return list(zip(rows[:count], rows[shift:]))


def sst2(folder: Path) -> None:
    """SST-2; the first rows decide that label 1 is the more frequent one."""
    write(
        folder / "train.tsv",
        ["sentence\tlabel", *(f"{a}\t{int(i % 3 > 0)}" for i, (a, _) in enumerate(pairs(60)))],
    )
    write(
        folder / "dev.tsv",
        ["sentence\tlabel", *(f"{a}\t{i % 2}" for i, (a, _) in enumerate(pairs()))],
        last=False,
    )
    write(folder / "test.tsv", ["index\tsentence", *(f"{i}\t{a}" for i, (a, _) in enumerate(pairs()))])


def stsb(folder: Path) -> None:
    """STS-B with scores in every way that they are written."""
    scores = [
        "5.000",
        "0.000",
        "3.8",
        "2.75",
        "4",
        "1.333",
        "0.2",
        "4.999",
        "3.141592653",
        "0",
        "5",
        ".5",
        "1e0",
    ]
    start = "main-captions\tMSRvid\t2012test\t0001\tnone\tnone"

    def row(i: int, a: str, b: str) -> str:
        return f"{i}\t{start}\t{a}\t{b}"

    for file, count in (("train", 60), ("dev", 30)):
        rows = [f"{row(i, a, b)}\t{scores[i % len(scores)]}" for i, (a, b) in enumerate(pairs(count))]
        write(folder / f"{file}.tsv", [STSB_TEST + "\tscore", *rows])
    write(folder / "test.tsv", [STSB_TEST, *(row(i, a, b) for i, (a, b) in enumerate(pairs()))])


def qqp(folder: Path) -> None:
    """QQP with rows broken over several lines, as its train file has them."""
    broken = [
        '17\t1\t2\t"A question broken',
        "by a line end?\tAnother?\t1",
        "",
        "x\ty",
        "1\t2\t3\t4\t5\t6\t7",
        "\r",
    ]
    for file, count in (("train", 60), ("dev", 30)):
        rows = [f"{i}\t{i}\t{i + 1}\t{a}\t{b}\t{int(i % 4 == 0)}" for i, (a, b) in enumerate(pairs(count))]
        rows[7:7] = broken
        write(folder / f"{file}.tsv", ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", *rows, *broken])
    rows = [f"{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs())]
    write(folder / "test.tsv", ["id\tquestion1\tquestion2", *rows])


def mnli(folder: Path) -> None:
    """MNLI: two dev and two test files; its dev files have the label in another column."""
    labels = ["neutral", "entailment", "contradiction", "entailment", "neutral"]  # a tie: then by name

    def row(i: int, a: str, b: str) -> str:
        return f"{i}\t{i}p\t{i}e\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\t{a}\t{b}"

    rows = [f"{row(i, a, b)}\tneutral\t{labels[i % 5]}" for i, (a, b) in enumerate(pairs(60))]
    write(folder / "train.tsv", [MNLI_TRAIN, *rows])
    for file, shift in (("matched", 3), ("mismatched", 9)):
        dev = [
            f"{row(i, a, b)}\tneutral\t\t\tentailment\t\t{labels[i % 5]}"
            for i, (a, b) in enumerate(pairs(26, shift))
        ]
        write(folder / f"dev_{file}.tsv", [MNLI_DEV, *dev])
        test = [row(i, a, b) for i, (a, b) in enumerate(pairs(27, shift))]
        write(folder / f"test_{file}.tsv", [MNLI_TEST, *test])


def rte(folder: Path, end: str = "\n") -> None:
    """RTE. With ``end="\\r\\n"``: a copy with Windows line ends. Some rows have columns behind the label."""
    labels = ["not_entailment", "entailment", "entailment "]
    for file, count in (("train", 60), ("dev", 30)):
        rows = [
            f"{i}\t{a}\t{b}\t{labels[i % 3]}" + "\tmore\tcolumns" * (i % 7 == 6)
            for i, (a, b) in enumerate(pairs(count))
        ]
        write(folder / f"{file}.tsv", ["\ufeffindex\tsentence1\tsentence2\tlabel", *rows], end)
    rows = [f"{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs())]
    write(folder / "test.tsv", ["index\tsentence1\tsentence2", *rows], end)


def cola(folder: Path) -> None:
    """CoLA: no header in train and dev, and no line end at the end of dev, as in GLUE's own."""
    for file, count in (("train", 60), ("dev", 30)):
        rows = [f"gj04\t{int(i % 3 > 0)}\t{'*' * (i % 3 == 0)}\t{a}" for i, (a, _) in enumerate(pairs(count))]
        write(folder / f"{file}.tsv", rows, last=file == "train")
    write(folder / "test.tsv", ["index\tsentence", *(f"{i}\t{a}" for i, (a, _) in enumerate(pairs()))])


def mrpc(folder: Path) -> None:
    """MRPC, whose label stands before the sentences, so that nothing behind them shows a stray tab."""
    header = "#1 ID\t#2 ID\t#1 String\t#2 String"
    for file, first, count in (
        ("train", "\ufeffQuality", 60),
        ("dev", "\ufeffQuality", 30),
        ("test", "index", 26),
    ):
        rows = [f"{int(i % 3 > 0)}\t70{i}\t80{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs(count))]
        write(folder / f"{file}.tsv", [f"{first}\t{header}", *rows])


def ax(path: Path) -> None:
    """The diagnostic set: a test file alone."""
    write(path, ["index\tsentence1\tsentence2", *(f"{i}\t{a}\t{b}" for i, (a, b) in enumerate(pairs()))])


WRITERS = {"CoLA": cola, "MRPC": mrpc, "SST-2": sst2, "STS-B": stsb, "QQP": qqp, "MNLI": mnli, "RTE": rte}


def small_bpe(folder: Path) -> Path:
    """Trains a byte-level BPE on the awkward sentences and writes encoder.json, vocab.bpe and a dict.txt.

    Neither the numbers nor the dictionary are in the order of the merges, and the dictionary lacks some
    tokens, which become <unk>.
    """
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(AWKWARD * 2, vocab_size=500, min_frequency=2, show_progress=False)
    folder.mkdir(parents=True, exist_ok=True)
    trained.save_model(str(folder))
    (folder / "merges.txt").rename(folder / "vocab.bpe")
    ranks = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    (folder / "vocab.json").unlink()
    numbers = {token: rank * 7919 % 503 for token, rank in ranks.items()}  # 503 is a prime: each number once
    (folder / "encoder.json").write_text(json.dumps(numbers))
    lines = [f"{number} {1000 - i}" for i, number in enumerate(sorted(numbers.values())) if number % 9]
    write(folder / "dict.txt", [*lines, "madeupword0000 0"])
    return folder


def small_wordpiece(folder: Path) -> Path:
    """A BERT's tokenizer of the awkward sentences, as it is kept beside data.

    As tokenizers' trainer makes one, which breaks ties in another way in each process: the most frequent pair
    of pieces becomes one, again and again.
    """
    from tokenizers import BertWordPieceTokenizer

    bert: Any = BertWordPieceTokenizer(lowercase=True)
    texts = (bert.normalizer.normalize_str(text) for text in AWKWARD)
    words = Counter(word for text in texts for word, _ in bert.pre_tokenizer.pre_tokenize_str(text))
    split = {word: [word[0], *(f"##{letter}" for letter in word[1:])] for word in words}
    pieces = sorted({piece for parts in split.values() for piece in parts})
    while len(pieces) < 295:
        pairs: Counter[tuple[str, str]] = Counter()
        for word, parts in split.items():
            pairs.update(dict.fromkeys(zip(parts, parts[1:]), words[word]))
        pair = min(pairs, key=lambda one: (-pairs[one], one))
        pieces.append(pair[0] + pair[1][2:])
        for parts in split.values():
            for k in range(len(parts) - 2, -1, -1):
                if (parts[k], parts[k + 1]) == pair:
                    parts[k : k + 2] = pieces[-1:]
    return write_encoder(folder, pieces)


def small_unigram(folder: Path) -> Path:
    """A SentencePiece tokenizer's files, as those of a DeBERTa-v3."""
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(folder, "deberta-v3", texts=[text for text in AWKWARD if text.strip()])
    size = len(json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))["model"]["vocab"])
    (folder / "config.json").write_text(json.dumps({"vocab_size": size}))
    return folder
