"""The tokenizer of a trained model in Hugging Face's layout, which produces the same ids as fairseq's task.

A WordPiece tokenizer becomes BERT's, with the rows of its own vocab.txt; ALBERT's has those of its
spiece.model; GPT-2's BPE becomes RoBERTa's, with the rows of fairseq's dictionary. An ALBERT model remains an
ALBERT with any of them. The tokens before, between and after the texts are those of the task: a pair is often
``[CLS] a [SEP] [SEP] b [SEP]``, which transformers' own BERT tokenizer would not produce. So the class is
``PreTrainedTokenizerFast``, which uses tokenizer.json unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Optional, Sequence

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.io import text_lines
from fairseq_adv.data.tokenizers.saved_tokenizer import config_of, saved_tokenizer
from fairseq_adv.data.tokenizers.spiece import MODEL, spiece_engine
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds, tokenizer_for_encoder
from fairseq_adv.data.tokenizers.wordpiece import wordpiece_engine
from fairseq_adv.hub.bpe_vocabulary import SPECIALS as BPE_SPECIALS
from fairseq_adv.hub.export_kinds import CHOICES, MASKED_LM, Trained
from fairseq_adv.hub.export_state import TrainedState
from fairseq_adv.hub.families import ALBERT, BERT, ROBERTA, Family
from fairseq_adv.hub.spiece_vocabulary import SPECIALS as ALBERT_SPECIALS
from fairseq_adv.hub.vocabulary import (
    FAIRSEQ_FIRST,
    FAIRSEQ_MASK,
    ROLES,
    order_for_fairseq,
    special_tokens,
    write_json,
)
from fairseq_adv.hub.wordpiece_vocabulary import SPECIALS as WORDPIECE_SPECIALS

# What str.splitlines splits at; the multiple-choice tasks replace it with a space.
_LINE_BREAKS = "\r\n|[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]"
# What str.strip removes, in Oniguruma's syntax.
_AROUND = r"\A[\s\x1c-\x1f]+|[\s\x1c-\x1f]+\z"


@dataclass(frozen=True)
class HfTokenizer:
    """An exported tokenizer.

    Attributes:
        family: the family of models that it is for.
        rows: (words,), for each index of fairseq's dictionary its row in the exported tables.
        pad: the padding token's row.
        files: name -> content.
    """

    family: Family
    rows: tuple[int, ...]
    pad: int
    files: dict[str, bytes]


def find_tokenizer(state: TrainedState, tokenizer_dir: Optional[Path]) -> TokenToIds:
    """Finds the tokenizer stored with a checkpoint or its data.

    Otherwise it is read from the checkpoint's own folder, if that is a converted encoder, or from the folder
    that a multiple-choice task read it from.

    Args:
        state: the checkpoint.
        tokenizer_dir: the folder that the user named; no other is searched then.

    Raises:
        DataError: there is none; names the option that sets its folder.
    """
    try:
        return saved_tokenizer(state.path, state.data, tokenizer_dir)
    except DataError:
        if tokenizer_dir is not None:
            raise
        places = [state.path.parent]
        if "tokenizer_dir" in state.task:
            named = state.task["tokenizer_dir"] or (state.data or "").split(":")[0]
            places += [Path(str(named))] if named else []
        for place in places:
            if (place / "dict.txt").is_file() and any(
                (place / name).is_file() for name in ("vocab.txt", "encoder.json", MODEL)
            ):
                return tokenizer_for_encoder(place)
        raise


def hf_tokenizer(tokenizer: TokenToIds, trained: Trained, words: int) -> HfTokenizer:
    """Builds the tokenizer's files.

    Args:
        tokenizer: WordPiece, ALBERT's or GPT-2's BPE.
        trained: what the model was trained for.
        words: rows of the model's word embeddings.

    Raises:
        DataError: tokenizer and model don't belong together, or the dictionary lacks tokens that the
            tokenizer produces.
    """
    symbols = list(tokenizer.dictionary.symbols)
    if FAIRSEQ_MASK not in symbols:
        symbols.append(FAIRSEQ_MASK)  # as tasks do
    if len(symbols) != words:
        raise DataError(
            f"{tokenizer.files['dictionary']}: has {len(symbols)} words (with fairseq's special ones and "
            f"<mask>), but the model has embeddings for {words}. Pass the folder of the tokenizer that it "
            "was trained with as --tokenizer-dir."
        )
    made = _byte_level if tokenizer.kind == "gpt2" else _compiled
    found = made(tokenizer, symbols, trained)
    return replace(found, family=ALBERT) if trained.is_albert else found


def _compiled(tokenizer: TokenToIds, symbols: Sequence[str], trained: Trained) -> HfTokenizer:
    """WordPiece's and ALBERT's."""
    if tokenizer.kind == "wordpiece":
        vocab, names = tokenizer.files["vocab"], WORDPIECE_SPECIALS
        tokens = text_lines(vocab)
        content = "".join(f"{token}\n" for token in tokens).encode("utf-8")
        engine = wordpiece_engine(vocab, cased=not tokenizer.options["lowercase"])
    else:
        vocab, names = tokenizer.files["spiece"], ALBERT_SPECIALS
        engine, content = spiece_engine(vocab, tokenizer.options), vocab.read_bytes()
        tokens = [engine.id_to_token(row) for row in range(engine.get_vocab_size())]
    specials = special_tokens(vocab.parent, names)
    named, places = order_for_fairseq(tokens, specials, vocab)
    row_of = dict(zip((*FAIRSEQ_FIRST, *named, FAIRSEQ_MASK), places))
    if set(row_of) != set(symbols):
        odd = sorted(set(row_of) ^ set(symbols))[0]
        raise DataError(
            f"{tokenizer.files['dictionary']}: its words are not the tokens of {vocab}; {odd!r} is in only "
            "one of them. Pass a folder whose files belong together as --tokenizer-dir."
        )
    rows = tuple(row_of[symbol] for symbol in symbols)
    if trained.kind == CHOICES:
        from tokenizers import Regex, normalizers

        breaks = normalizers.Replace(Regex(_LINE_BREAKS), " ")
        engine.normalizer = normalizers.Sequence([breaks, engine.normalizer])
    files = _files(engine, trained, rows, specials, symbols, config_of(tokenizer))
    files["vocab.txt" if tokenizer.kind == "wordpiece" else MODEL] = content
    return HfTokenizer(BERT, rows, row_of["<pad>"], files)


def _byte_level(tokenizer: TokenToIds, symbols: Sequence[str], trained: Trained) -> HfTokenizer:
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

    theirs = get_encoder(str(tokenizer.files["encoder_json"]), str(tokenizer.files["vocab_bpe"]))
    token_of = {str(number): token for token, number in theirs.encoder.items()}
    vocabulary = {token_of.get(symbol, symbol): row for row, symbol in enumerate(symbols)}
    merges = sorted(theirs.bpe_ranks, key=theirs.bpe_ranks.__getitem__)
    lacking = [token for pair in merges for token in (*pair, "".join(pair)) if token not in vocabulary]
    if lacking or len(vocabulary) != len(symbols):
        raise DataError(
            f"{tokenizer.files['dictionary']}: lacks {lacking[:1] or 'a token'} of "
            f"{tokenizer.files['vocab_bpe']}, or has one twice. Pass a folder whose files belong together "
            "as --tokenizer-dir."
        )
    engine = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token="<unk>"))
    steps = [normalizers.Replace(Regex(_LINE_BREAKS), " ")] if trained.kind == CHOICES else []
    if trained.kind != MASKED_LM:  # whose text is split at <mask>, where spaces matter
        steps.append(normalizers.Replace(Regex(_AROUND), ""))
    if steps:
        engine.normalizer = normalizers.Sequence(steps)
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    rows = tuple(range(len(symbols)))
    specials = {symbol: BPE_SPECIALS[role] for symbol, role in ROLES.items()}
    files = _files(engine, trained, rows, specials, symbols, {"bos_token": "<s>", "eos_token": "</s>"})
    files["vocab.json"] = (json.dumps(vocabulary, ensure_ascii=False) + "\n").encode("utf-8")
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    files["merges.txt"] = f"#version: 0.2\n{lines}".encode()
    return HfTokenizer(ROBERTA, rows, vocabulary["<pad>"], files)


def _files(
    engine: Any, trained: Trained, rows: Sequence[int], specials: dict[str, str], symbols: Sequence[str],
    settings: dict[str, Any],
) -> dict[str, bytes]:  # fmt: skip
    """tokenizer.json and tokenizer_config.json.

    Args:
        engine: without special tokens and without the template around the texts; both are added to it.
        specials: fairseq's special symbols -> the tokens' names here.
        settings: further entries of tokenizer_config.json.
    """
    from tokenizers import AddedToken

    for symbol, token in specials.items():
        # RoBERTa's mask includes the space before it.
        lstrip = symbol == FAIRSEQ_MASK and "bos_token" in settings
        engine.add_special_tokens([AddedToken(token, lstrip=lstrip, normalized=False)])
    engine.post_processor = _template(trained, rows, specials, symbols)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trained.longest,
        **{ROLES[symbol]: token for symbol, token in specials.items()},
        "model_input_names": ["input_ids", "attention_mask"],  # otherwise transformers 4 adds the segments
        # As in fairseq, texts can't contain special tokens; but those of a masked LM must contain masks.
        "split_special_tokens": trained.kind != MASKED_LM,
        "clean_up_tokenization_spaces": False,
        **settings,
    }
    text = json.dumps(json.loads(engine.to_str()), ensure_ascii=False, separators=(",", ":"))
    return {"tokenizer.json": text.encode("utf-8"), "tokenizer_config.json": write_json(config)}


def _template(trained: Trained, rows: Sequence[int], specials: dict[str, str], symbols: Sequence[str]) -> Any:
    """``init A </s>`` and ``init A </s> separator B </s>``; all in segment 0."""
    from tokenizers import processors

    names: dict[int, str] = {}

    def placed(token: Optional[int]) -> list[str]:
        if token is None:
            return []
        if token >= len(symbols) or symbols[token] not in specials:
            raise DataError(
                f"the model was trained with token {token} around its texts, which is none of "
                f"{', '.join(specials)}; it cannot be exported"
            )
        names[token] = specials[symbols[token]]
        return [f"{names[token]}:0"]

    end = symbols.index("</s>")
    single = [*placed(trained.init_token), "$A:0", *placed(end)]
    pair = [*single, *placed(trained.separator_token), "$B:0", *placed(end)]
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, rows[token]) for token, name in names.items()]
    )
