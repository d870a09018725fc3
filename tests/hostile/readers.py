"""Every reader of files that people or other programs make, each with a good folder to damage."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import glue_samples
import hf_models
import numpy as np
from hf_encoders import save_encoder
from small_wordnet import small_wordnet
from support import question, write_json_lines, write_task, wsc_line
from token_data import span_question, write_squad

from fairseq_adv.data.choices.question_layouts import read_any_questions, read_race, read_regents
from fairseq_adv.data.classes.nli_files import NliFile, read_nli
from fairseq_adv.data.corpus.cuts import fingerprint, inputs, plan
from fairseq_adv.data.corpus.reader import Reading, rows_of
from fairseq_adv.data.corpus.shard import counts_of
from fairseq_adv.data.glue.glue_files import TASKS, read_split, task_layout
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.run_metrics import read_metrics
from fairseq_adv.data.spans.squad import read_squad
from fairseq_adv.data.tables.labelled_rows import Columns, read_texts
from fairseq_adv.data.tables.table_files import read_table
from fairseq_adv.data.tags.columns import read_columns
from fairseq_adv.data.text.labelled_folder import check_split
from fairseq_adv.data.tokenizers import HF_VOCABULARY
from fairseq_adv.data.tokenizers.hf_tokenizer import vocabulary_rows
from fairseq_adv.data.tokenizers.saved_tokenizer import save_tokenizer, tokenizer_for_encoder
from fairseq_adv.data.tokenizers.spiece import SentencePieceTokenizer
from fairseq_adv.data.tokenizers.text_to_ids import load_dictionary
from fairseq_adv.data.workspace import finished
from fairseq_adv.data.wsc.superglue import detokenised, read_wsc
from fairseq_adv.data.wsc.wnli import read_wnli
from fairseq_adv.evaluation.entity_report import score_columns
from fairseq_adv.evaluation.predict.benchmarks import check_file
from fairseq_adv.evaluation.span_report import score_file
from fairseq_adv.evaluation.word_attacks.candidates import Neighbours, WordNet
from fairseq_adv.hub.classifier_folder import checkpoint_of
from fairseq_adv.hub.convert import convert_hf_checkpoint
from fairseq_adv.models import transformers_models
from fairseq_adv.retrieval.sentences import survey


@dataclass(frozen=True)
class Reader:
    """``make`` fills a folder; ``file`` in it is damaged; ``read`` is called with the folder."""

    file: str
    make: Callable[[Path], object]
    read: Callable[[Path], object]


def _text(file: str, content: str) -> Callable[[Path], object]:
    return lambda folder: (folder / file).write_text(content, encoding="utf-8", newline="")


def _lines(file: str, *rows: dict[str, Any]) -> Callable[[Path], object]:
    return lambda folder: write_json_lines(folder / file, rows)


def _table(ending: str, content: str, columns: Columns, header: bool = True) -> Reader:
    file = f"a{ending}"
    return Reader(
        file,
        _text(file, content),
        lambda folder: read_texts("train", read_table(folder / file, header), columns),
    )


ARC = [question(np.random.default_rng(0), f"q{k}", 3, para=True) for k in range(2)]
PLAIN = {
    "choices": ["one", "two", "three"],
    "answer": 1,
    "context": "It rains.",
    "question": "And then?",
    "id": "7",
}
HELLASWAG = {"ind": 4, "ctx_a": "A man sits.", "ctx_b": "he", "endings": ["sings.", "runs."], "label": "1"}
SWAG = 'sent1,sent2,ending0,ending1,label\r\nA man sits.,He,sings.,"runs, far.",1\r\n'
REGENTS = 'questionID,AnswerKey,isMultipleChoiceQuestion,question\r\nA1,B,1,"Which? (A) ice (B) steam"\r\n'
ANLI = {"uid": "a", "context": "It rains.", "hypothesis": "It is wet.", "label": "e"}
SNLI = {"sentence1": "It rains.", "sentence2": "It is wet.", "gold_label": "entailment"}
RACE = {"article": "A story.", "questions": ["Who?", "When?"], "options": [["he", "she"], ["now", "then"]],
        "answers": ["A", "B"], "id": "x"}  # fmt: skip
METRICS = [
    {"options": {"common": {"seed": 1}, "dataset": {"valid_subset": "valid"}}},
    {"update": 2, "epoch": 1, "split": "train_inner", "seconds": 0.5, "loss": 1.25, "accordance_update": 2.0},
    {"update": 4, "epoch": 1, "split": "valid", "seconds": 1.5, "loss": None, "accuracy": 50.0},
]
COUNTS = {"rows": 3, "tokens": 9, "unknown": 0, "replaced": 0}
PREDICTIONS = "index\tprediction\n0\tentailment\n1\tnot_entailment\n"


def _glue(name: str, split: str, rows: Sequence[str]) -> Reader:
    task = task_layout(name)
    layout = next(one for one in task.splits if one.name == split)
    head = ["\t".join(layout.columns)] if layout.has_header else []
    content = "\n".join([*head, *rows]) + "\n"
    return Reader(
        layout.file,
        _text(layout.file, content),
        lambda folder: read_split(folder / layout.file, task, layout),
    )


def _glue_rows(name: str) -> Reader:
    """The training split, or AX's only one; two rows."""
    task = task_layout(name)
    layout = task.splits[0]
    label = task.classes[-1] if task.classes else "2.5"
    row = [label if column == layout.label else f"text {column}" for column in range(len(layout.columns))]
    return _glue(name, layout.name, ["\t".join(row)] * 2)


def _corpus(folder: Path) -> object:
    pieces = inputs([folder / "a.txt"])
    shards = plan(pieces, 2, "blank-line")
    return fingerprint(pieces), [list(rows_of(piece, Reading())) for shard in shards for piece in shard]


def _packed(name: str) -> Callable[[Path], object]:
    import gzip

    import zstandard

    pack = gzip.compress if name.endswith(".gz") else zstandard.ZstdCompressor().compress
    return lambda folder: (folder / name).write_bytes(pack(b"one line\nand another\n\nmore\n"))


def _tokenizer(folder: Path) -> object:
    tokenizer = tokenizer_for_encoder(folder)
    return tokenizer.fingerprint(), tokenizer.encode(["A text, and [SEP] more.", "é ²\u2028x", ""])


def _roberta(folder: Path) -> object:
    """With its weights in two files."""
    from safetensors.torch import load_file, save_file

    hf_models.save_roberta(folder)
    state = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    parts = {"a.safetensors": list(state)[::2], "b.safetensors": list(state)[1::2]}
    for file, names in parts.items():
        save_file({name: state[name] for name in names}, folder / file)
    shards = {name: file for file, names in parts.items() for name in names}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    return (folder / "tokenizer_config.json").write_text(
        '{"add_prefix_space": false, "mask_token": "<mask>"}'
    )


def _fast_roberta(folder: Path) -> object:
    """With its tokenizer in one file, a token that was added, and special tokens in a file of their own."""
    hf_models.save_roberta(folder)
    vocabulary = json.loads((folder / "vocab.json").read_text(encoding="utf-8"))
    merges = (folder / "merges.txt").read_text(encoding="utf-8").splitlines()[1:]
    fast = {
        "added_tokens": [{"id": vocabulary["<mask>"], "content": "<mask>", "special": True}],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": merges},
    }
    for name in ("vocab.json", "merges.txt"):
        (folder / name).unlink()
    (folder / "special_tokens_map.json").write_text(
        '{"mask_token": {"content": "<mask>"}, "bos_token": "<s>"}'
    )
    (folder / "added_tokens.json").write_text(json.dumps({"madeupword0000": vocabulary["madeupword0000"]}))
    return (folder / "tokenizer.json").write_text(json.dumps(fast))


def _spiece(folder: Path) -> object:
    """A unigram model of SentencePiece, with its pieces as a dictionary."""
    import sentencepiece

    model, texts = BytesIO(), iter(text for text in glue_samples.AWKWARD * 3 if text.strip())
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts, model_writer=model, vocab_size=300, hard_vocab_limit=False,
        num_threads=1, minloglevel=2,
    )  # fmt: skip
    (folder / "spiece.model").write_bytes(model.getvalue())
    loaded = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = [loaded.id_to_piece(number) for number in range(3, loaded.get_piece_size())]
    return glue_samples.write(folder / "dict.txt", [f"{piece} 1" for piece in pieces])


def _as_it_is(folder: Path) -> object:
    folder.rmdir()
    return save_encoder(folder, "deberta-v3")


def _classifier(folder: Path) -> object:
    from transformers import AutoModelForSequenceClassification

    _as_it_is(folder)
    names = {0: "fine", 1: "bad"}
    model = AutoModelForSequenceClassification.from_pretrained(folder, id2label=names)
    return model.save_pretrained(folder)


def _kept(folder: Path) -> object:
    """As it stands beside data."""
    save_encoder(folder.parent / "encoder", "electra")
    return save_tokenizer(folder, tokenizer_for_encoder(folder.parent / "encoder"))


def built_as_it_is(folder: Path) -> object:
    """As ``--arch hf_encoder`` builds it."""
    description, tensors = transformers_models.read(folder)
    parts = transformers_models.described(description)
    config = transformers_models.configuration(parts, {})
    words = len(vocabulary_rows(parts["config"]["vocab_size"], parts["special"]))
    config = transformers_models.with_fairseqs_ids(config, words)
    return transformers_models.build(config, "Model", tensors, str(folder))


def _convert(folder: Path) -> object:
    out = folder.parent / "out"
    try:
        return convert_hf_checkpoint(folder, out)
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _manifest(folder: Path) -> object:
    (folder / "b").write_text("abc")
    return (folder / "manifest.json").write_text(json.dumps({"made_from": {"a": 1}, "files": {"b": 3}}))


def _squad(folder: Path) -> Path:
    rows = [span_question("a", "w1 w2", "w2"), span_question("b", "w1 w2", None)]
    return write_squad(folder / "a.json", ("w1 w2", rows))


def _wordnet(folder: Path) -> object:
    wordnet = WordNet(folder / "wordnet")
    return [wordnet.synonyms(word) for word in ("movie", "ran", "loves", "good", "bigger", "men", "well")]


def _index(folder: Path) -> object:
    return write_task(folder, train=3, valid=2)


READERS: dict[str, Reader] = {
    "csv": _table(".csv", 'text,label\r\n"a, b",yes\r\nc,no\r\n', Columns(("text",), "label")),
    "tsv": _table(".tsv", "text\tpair\tlabel\na\tb\t1.5\nc\td\t2\n",
                  Columns(("text", "pair"), "label", True)),
    "jsonl": _table(".jsonl", '{"text": "a", "label": 1}\n{"text": "b", "label": 0}\n',
                    Columns(("text",), "label")),
    "classes": _table(".label", "DESC:manner How ?\nNUM:date When ?\n", Columns(("text",), "label")),
    **{task.name: _glue_rows(task.name) for task in TASKS},
    "wnli": Reader("train.tsv",
                   _text("train.tsv", "index\tsentence1\tsentence2\tlabel\n0\tHe ran.\tJo ran.\t1\n"),
                   lambda folder: read_wnli(folder / "train.tsv")),
    "anli": Reader("train.jsonl", _lines("train.jsonl", ANLI, {**ANLI, "label": "n"}),
                   lambda folder: read_nli(NliFile(folder / "train.jsonl", "train", "R1"))),
    "snli": Reader("train.txt", _lines("train.txt", SNLI, {**SNLI, "gold_label": "-"}),
                   lambda folder: read_nli(NliFile(folder / "train.txt", "train", ""))),
    "scitail": Reader("train.tsv", _text("train.tsv", "It rains.\tIt is wet.\tentails\nA\tB\tneutral\n"),
                      lambda folder: read_nli(NliFile(folder / "train.tsv", "train", ""))),
    "nli samples": Reader("test.json", _text("test.json", json.dumps({"0": SNLI, "1": SNLI})),
                          lambda folder: read_nli(NliFile(folder / "test.json", "test", ""))),
    "arc": Reader("a.jsonl", _lines("a.jsonl", *ARC),
                  lambda folder: read_any_questions(folder / "a.jsonl", "train")),
    "own questions": Reader("a.jsonl", _lines("a.jsonl", PLAIN),
                            lambda folder: read_any_questions(folder / "a.jsonl", "train")),
    "hellaswag": Reader("a.jsonl", _lines("a.jsonl", HELLASWAG, {**HELLASWAG, "ind": 5}),
                        lambda folder: read_any_questions(folder / "a.jsonl", "train")),
    "swag": Reader("a.csv", _text("a.csv", SWAG),
                   lambda folder: read_any_questions(folder / "a.csv", "train")),
    "race": Reader("1.txt", _text("1.txt", json.dumps(RACE)), read_race),
    "regents": Reader("a.csv", _text("a.csv", REGENTS), lambda folder: read_regents(folder / "a.csv")),
    "wsc": Reader("a.jsonl", _lines("a.jsonl", wsc_line(np.random.default_rng(0), 0, True)),
                  lambda folder: list(map(detokenised, read_wsc(folder / "a.jsonl")))),
    "tags": Reader("a.tsv", _text("a.tsv", "one\tB-X\ntwo\tI-X\n\nthree\tO\n"),
                   lambda folder: read_columns(folder / "a.tsv")),
    "predicted tags": Reader("a.txt", _text("a.txt", "one B-X O\ntwo I-X B-Y\n\nthree O S-X\n"),
                             lambda folder: score_columns(folder / "a.txt")),
    "squad": Reader("a.json", _squad, lambda folder: read_squad(folder / "a.json")),
    "answers": Reader(
        "b.json", lambda folder: (_squad(folder), (folder / "b.json").write_text('{"a": "w1", "b": ""}')),
        lambda folder: score_file(folder / "a.json", folder / "b.json")),
    "null odds": Reader(
        "c.json", lambda folder: (_squad(folder), (folder / "b.json").write_text('{"a": "w1", "b": ""}'),
                                  (folder / "c.json").write_text('{"a": -1.5, "b": 2}')),
        lambda folder: score_file(folder / "a.json", folder / "b.json", folder / "c.json")),
    "corpus": Reader("a.txt", _text("a.txt", "one line\nand another\n\nmore\n\nand more\n"), _corpus),
    "corpus.zst": Reader("a.zst", _packed("a.zst"),
                         lambda folder: list(rows_of(inputs([folder / "a.zst"])[0], Reading()))),
    "sentences": Reader("a.txt", _text("a.txt", "One sentence.\nAnd é one.\n"),
                        lambda folder: list(survey([str(folder / "a.txt")]).sentences())),
    "sentences.gz": Reader("a.gz", _packed("a.gz"),
                           lambda folder: list(survey([str(folder / "a.gz")]).sentences())),
    "dict.txt": Reader("dict.txt", _text("dict.txt", "a 5\nb 3 #fairseq:overwrite\nmadeupword0000 0\n"),
                       lambda folder: load_dictionary(folder / "dict.txt")),
    "encoder.json": Reader("encoder.json", glue_samples.small_bpe, _tokenizer),
    "vocab.bpe": Reader("vocab.bpe", glue_samples.small_bpe, _tokenizer),
    "spiece.model": Reader("spiece.model", _spiece, lambda folder: SentencePieceTokenizer(
        folder / "spiece.model", folder / "dict.txt").encode(["A text, and more.", "é ²\u2028x", ""])),
    "lines": Reader("a", _text("a", "one\r\ntwo\n"), lambda folder: text_lines(folder / "a")),
    "index": Reader("input0/train.idx", _index, lambda folder: check_split(folder, "train", False)),
    "ids": Reader("label/valid.bin", _index, lambda folder: check_split(folder, "valid", False)),
    "label dictionary": Reader("label/dict.txt", _index, lambda folder: check_split(folder, "train", False)),
    "counts": Reader("train.json", _text("train.json", json.dumps(COUNTS)),
                     lambda folder: counts_of(folder, "train")),
    "manifest": Reader(
        "manifest.json", _manifest, lambda folder: finished(folder, {"a": 1}, False)),
    "metrics": Reader("metrics.jsonl", _lines("metrics.jsonl", *METRICS), read_metrics),
    "submission": Reader("RTE.tsv", _text("RTE.tsv", PREDICTIONS), lambda folder: check_file(
        folder / "RTE.tsv", (folder / "RTE.tsv").read_bytes(), 2, "RTE")),
    "neighbours": Reader(
        "a.json", _text("a.json", '{"good": ["fine", "great"], "film": []}'),
        lambda folder: Neighbours(folder / "a.json", 5)("Good", random.Random(0))),
    **{f"wordnet {name}": Reader(
        f"wordnet/{name}", lambda folder: small_wordnet(folder / "wordnet"), _wordnet)
       for name in ("index.noun", "data.noun", "index.verb", "data.adj")},
    "config.json": Reader("config.json", _roberta, _convert),
    "index of shards": Reader("model.safetensors.index.json", _roberta, _convert),
    "safetensors": Reader("b.safetensors", _roberta, _convert),
    "tokenizer_config.json": Reader("tokenizer_config.json", _roberta, _convert),
    "hf config.json": Reader("config.json", _as_it_is, built_as_it_is),
    "classifier config.json": Reader("config.json", _classifier, checkpoint_of),
    "hf safetensors": Reader("model.safetensors", _as_it_is, built_as_it_is),
    "hf tokenizer.json": Reader("tokenizer.json", _as_it_is, _tokenizer),
    "hf vocabulary": Reader(HF_VOCABULARY, _kept, _tokenizer),
    "hf tokenizer_config.json": Reader("tokenizer_config.json", _as_it_is, _tokenizer),
    "tokenizer.json": Reader("tokenizer.json", glue_samples.small_wordpiece, _tokenizer),
    "bpe tokenizer.json": Reader("tokenizer.json", _fast_roberta, _convert),
    "special_tokens_map.json": Reader("special_tokens_map.json", _fast_roberta, _convert),
    "added_tokens.json": Reader("added_tokens.json", _fast_roberta, _convert),
    "vocab.json": Reader("vocab.json", hf_models.save_roberta, _convert),
    "merges.txt": Reader("merges.txt", hf_models.save_roberta, _convert),
}  # fmt: skip

JSON_READERS = [
    name
    for name, reader in READERS.items()
    if reader.file.endswith((".json", ".jsonl")) or name in ("snli", "race")
]
