"""The tokenizer of a trained model in Hugging Face's layout, which produces the same ids as fairseq's task.

That of a Hugging Face folder stays what it is; GPT-2's BPE becomes RoBERTa's, with the rows of fairseq's
dictionary. The tokens before, between and after the texts are those of the task: a pair may be
``[CLS] a [SEP] [SEP] b [SEP]``, which transformers' own BERT tokenizer would not produce. So the class is
``PreTrainedTokenizerFast``, which uses tokenizer.json unchanged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Optional, Sequence

from fairseq_adv.data.errors import DataError
from fairseq_adv.data.tokenizers import FAIRSEQ_MASK, ROLES, special_tokens
from fairseq_adv.data.tokenizers.hf_tokenizer import HFTokenizer, vocabulary_rows
from fairseq_adv.data.tokenizers.text_to_ids import TokenToIds
from fairseq_adv.hub.trained_checkpoint import CHOICES, MASKED_LM, Trained
from fairseq_adv.hub.vocabulary import AROUND, LINE_BREAKS, write_json


@dataclass
class ExportedTokenizer:
    """An exported tokenizer."""

    engine: Any  # a ``tokenizers.Tokenizer`` that nothing else uses
    rows: tuple[int, ...]  # (words,), for each index of fairseq's dictionary its row in the exported tables
    specials: dict[str, str]  # fairseq's special symbols -> the tokens' names
    settings: dict[str, Any]  # entries of tokenizer_config.json
    files: dict[str, bytes]


def exported_tokenizer(tokenizer: TokenToIds, trained: Trained, words: int) -> ExportedTokenizer:
    """The tokenizer of a trained model, with its files.

    Args:
        words: rows of the model's word embeddings.
    """
    from tokenizers import AddedToken, Regex, normalizers

    symbols = list(tokenizer.dictionary.symbols)
    if FAIRSEQ_MASK not in symbols:
        symbols.append(FAIRSEQ_MASK)  # as tasks do
    if len(symbols) != words:
        raise DataError(
            f"{tokenizer.files.get('dictionary', 'the tokenizer')}: has {len(symbols)} words (with fairseq's "
            f"special ones and <mask>), but the model has embeddings for {words}. Pass the folder of the "
            "tokenizer that it was trained with as --tokenizer-dir."
        )
    if isinstance(tokenizer, HFTokenizer):
        made = _from_folder(tokenizer)
    else:
        made = _byte_level(tokenizer, symbols)
    engine, specials, is_masked_lm = made.engine, made.specials, trained.goal == MASKED_LM
    steps = [normalizers.Replace(Regex(LINE_BREAKS), " ")] if trained.goal == CHOICES else []
    # A text is split first at words that were added so, and a masked LM's at <mask>: spaces matter there.
    added = engine.get_added_tokens_decoder().values()
    splits = any(not (token.special or token.normalized) for token in added)
    if not (splits or is_masked_lm):
        steps.append(normalizers.Replace(Regex(AROUND), ""))
    if steps:
        engine.normalizer = normalizers.Sequence(steps + ([engine.normalizer] if engine.normalizer else []))
    has_specials = isinstance(tokenizer, HFTokenizer)  # with the encoder's own settings of each
    for symbol, token in ({} if has_specials else specials).items():
        lstrip = symbol == FAIRSEQ_MASK  # RoBERTa's mask includes the space before it
        engine.add_special_tokens([AddedToken(token, lstrip=lstrip, normalized=False)])
    if not (is_masked_lm and has_specials):  # that of the folder also has the encoder's pairs
        engine.post_processor = _template(trained, made.rows, specials, symbols)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": trained.longest,
        **{ROLES[symbol]: token for symbol, token in specials.items()},
        "model_input_names": ["input_ids", "attention_mask"],  # otherwise transformers 4 adds the segments
        # As in fairseq, texts can't contain special tokens; but those of a masked LM must contain masks.
        "split_special_tokens": not is_masked_lm,
        "clean_up_tokenization_spaces": False,
        **made.settings,
    }
    text = json.dumps(json.loads(engine.to_str()), ensure_ascii=False, separators=(",", ":"))
    made.files.update({"tokenizer.json": text.encode("utf-8"), "tokenizer_config.json": write_json(config)})
    return made


def _from_folder(tokenizer: HFTokenizer) -> ExportedTokenizer:
    """The tokenizer.json that the encoder came with."""
    from tokenizers import Tokenizer

    engine, special = Tokenizer.from_str(tokenizer.engine.to_str()), tokenizer.options["special"]
    tokens = {
        symbol: str(engine.id_to_token(number)) for symbol, number in special.items() if number is not None
    }
    rows = vocabulary_rows(tokenizer.options["words"], special)
    return ExportedTokenizer(engine, tuple(rows), tokens, {}, {})


def _byte_level(tokenizer: TokenToIds, symbols: Sequence[str]) -> ExportedTokenizer:
    """GPT-2's BPE, with the rows of fairseq's dictionary; no special tokens yet."""
    from fairseq.data.encoders.gpt2_bpe_utils import get_encoder
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    gpt2 = get_encoder(str(tokenizer.files["encoder_json"]), str(tokenizer.files["vocab_bpe"]))
    token_of = {str(number): token for token, number in gpt2.encoder.items()}
    specials = special_tokens(tokenizer.folder)
    names = {**token_of, **specials}
    vocabulary = {names.get(symbol, symbol): row for row, symbol in enumerate(symbols)}
    merges = sorted(gpt2.bpe_ranks, key=gpt2.bpe_ranks.__getitem__)
    lacking = [token for pair in merges for token in (*pair, "".join(pair)) if token not in vocabulary]
    if lacking or len(vocabulary) != len(symbols):
        raise DataError(
            f"{tokenizer.files['dictionary']}: lacks {lacking[:1] or 'a token'} of "
            f"{tokenizer.files['vocab_bpe']}, or has one twice. Pass a folder whose files belong together "
            "as --tokenizer-dir."
        )
    engine = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, unk_token=specials["<unk>"]))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    engine.decoder = decoders.ByteLevel()
    lines = "".join(f"{left} {right}\n" for left, right in merges)
    files = {
        "vocab.json": (json.dumps(vocabulary, ensure_ascii=False) + "\n").encode("utf-8"),
        "merges.txt": f"#version: 0.2\n{lines}".encode(),
    }
    settings = {"bos_token": specials["<s>"], "eos_token": specials["</s>"]}
    return ExportedTokenizer(engine, tuple(range(len(symbols))), specials, settings, files)


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
