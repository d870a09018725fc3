"""Configurations that run code, or read or write files; the pickles that hold them are clean."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq
from fairseq.dataclass.configs import FairseqConfig
from fairseq.logging.meters import SumMeter
from omegaconf import OmegaConf
from omegaconf.nodes import AnyNode, StringNode

State = dict[str, Any]


def code(canary: Path) -> str:
    """An expression that makes the canary; no path of a temporary folder holds quotes."""
    return f"__import__('pathlib').Path('{canary}').touch()"


def _model(name: str, option: str, expression: Callable[[str], str | bytes] = str) -> Any:
    """A model with one option, which is made of the code that makes the canary."""

    def change(state: State, canary: Path) -> None:
        state["cfg"]["model"] = Namespace(_name=name, arch=name, **{option: expression(code(canary))})

    return change


# Ways to write the layers of fconv_lm.
EXPRESSIONS: dict[str, Callable[[str], str | bytes]] = {
    "in bytes": str.encode,
    "behind a list": lambda code: f"[(1, 1)] + [{code}]",
    "as an attribute of a literal": lambda code: "().__class__.__base__.__subclasses__()",
    "as a lambda": lambda code: f"(lambda: {code})()",
    "as a comprehension": lambda code: f"[{code} for _ in [1]]",
    "as a formatted string": lambda code: f'f"{{{code}}}"',
    "a list of a trillion": lambda code: "[(1, 1)] * 10 ** 12",
    "a thousand brackets": lambda code: "[" * 1000 + "]" * 1000,
    "a long text": lambda code: "1," * 10_000_000,
}


def _added(part: str, option: str) -> Any:
    """To the options that are there, which build the model that was trained."""

    def change(state: State, canary: Path) -> None:
        options = state["cfg"][part]
        options[option] = code(canary) if isinstance(options, dict) else None
        if isinstance(options, Namespace):
            setattr(options, option, code(canary))

    return change


def in_roberta_s_attention(state: State, canary: Path) -> None:
    vars(state["cfg"]["model"])["encoder_xformers_att_config"] = code(canary)


def a_path_as_a_name(state: State, canary: Path) -> None:
    """hydra reads `bpe=NAME` from the file NAME.yaml."""
    (canary.parent / "group.yaml").write_text("bpe: x\n", encoding="utf-8")
    place = os.path.relpath(canary.parent / "group", Path(fairseq.__file__).parent / "config" / "bpe")
    state["args"] = Namespace(**{**model(state), "bpe": place})


def in_a_meter(state: State, canary: Path) -> None:
    state["args"] = SumMeter()
    vars(state["args"]).update(model(state), encoder_xformers_att_config=code(canary))


def plain(state: State, **parts: Any) -> Any:
    """The configuration without namespaces, with other parts."""
    cfg = {part: dict(vars(v)) if isinstance(v, Namespace) else v for part, v in state["cfg"].items()}
    return OmegaConf.create({**cfg, **parts})


def shared(depth: int) -> Any:
    """A few hundred bytes that are 2 ** depth values."""
    return [shared_part := shared(depth - 1), shared_part] if depth else []


def model(state: State) -> dict[str, Any]:
    return dict(vars(state["cfg"]["model"]))


def _cfg(**parts: Callable[[State, Path], Any]) -> Any:
    """Other parts of the configuration."""
    return lambda state, canary: state["cfg"].update({n: part(state, canary) for n, part in parts.items()})


def _args(**options: Any) -> Any:
    """The options as fairseq kept them before 0.10; a function is called with the canary."""

    def change(state: State, canary: Path) -> None:
        given = {name: value(canary) if callable(value) else value for name, value in options.items()}
        state["args"] = Namespace(**{**model(state), **given})

    return change


def _in_att_config(kind: Callable[[str], Any]) -> Any:
    return _cfg(model=lambda s, c: Namespace(**{**model(s), "encoder_xformers_att_config": kind(code(c))}))


def _sizes(**sizes: Any) -> Any:
    return lambda state, canary: vars(state["cfg"]["model"]).update(sizes)


OLD = _args(arch="fconv_lm", decoder_layers=code)
CTC = "('a', 'b', 1, 1)"
RUN_CODE = {
    "fconv_lm": _model("fconv_lm", "decoder_layers"),
    "fconv encoder": _model("fconv", "encoder_layers"),
    "fconv_self_att": _model("fconv_self_att", "pretrained"),
    "lightconv_lm": _model("lightconv_lm", "character_filters"),
    "transformer_lm characters": _model("transformer_lm", "character_filters"),
    "transformer_lm softmax": _model("transformer_lm", "adaptive_softmax_cutoff"),
    "lstm": _model("lstm", "decoder_attention"),
    "lstm_lm": _model("lstm_lm", "adaptive_softmax_cutoff"),
    "wav2vec2": _model("wav2vec2", "conv_feature_layers"),
    "hubert": _model("hubert", "conv_feature_layers"),
    "wav2vec": _model("wav2vec", "conv_aggregator_layers"),
    "criterion": _added("criterion", "wer_args"),
    "optimizer": _added("optimizer", "adam_betas"),
    "pipelines": _added("distributed_training", "pipeline_balance"),
    **{name: _model("fconv_lm", "decoder_layers", expression) for name, expression in EXPRESSIONS.items()},
    "in roberta s attention": in_roberta_s_attention,
    "in old args": lambda state, canary: (OLD(state, canary), state.update(cfg=None)),
    "in old args beside a clean cfg": OLD,
    "in a task": _cfg(task=lambda s, c: Namespace(
        _name="multilingual_translation", data=s["cfg"]["task"]["data"], lang_pairs="a-b",
        left_pad_source=code(c))),
    "by interpolation": lambda state, canary: (
        state["cfg"]["common"].update(tensorboard_logdir=code(canary)),
        state["cfg"].update(model=OmegaConf.create(
            {"_name": "fconv_lm", "decoder_layers": "${common.tensorboard_logdir}"}))),
    # Not where fairseq evaluates anything, so only the rule on references refuses it.
    "a reference to the environment": lambda state, canary: state["cfg"]["common"].update(
        tensorboard_logdir="${env:HOME}"),
    "in a config of omegaconf": lambda state, canary: state.update(
        cfg=plain(state, model={"_name": "fconv_lm", "decoder_layers": code(canary)})),
    "in a namespace in a list": _cfg(model=lambda s, c: Namespace(
        _name="wav2vec_ctc", w2v_path="x",
        w2v_args=[Namespace(_name="wav2vec2", conv_feature_layers=code(c))])),
    "in a node": _in_att_config(AnyNode),
    "in a node of a dict": _cfg(
        model=lambda s, c: {**model(s), "encoder_xformers_att_config": StringNode(code(c))}),
    "a node as the name": _cfg(model=lambda s, c: {
        StringNode("encoder_xformers_att_config"): code(c),
        **{n: v for n, v in model(s).items() if n != "encoder_xformers_att_config"}}),
    "in a configuration of fairseq": lambda state, canary: (
        in_roberta_s_attention(state, canary),
        state.update(cfg=FairseqConfig(**{p: state["cfg"][p] for p in ("task", "model", "criterion")}))),
    "in a meter": in_a_meter,
    "in yaml": lambda state, canary: (
        in_roberta_s_attention(state, canary), state.update(cfg=OmegaConf.to_yaml(plain(state)))),
    "a path as a name": a_path_as_a_name,
    "a name that hydra interprets": _args(tokenizer="{a: 1}"),
    "args of a wrong kind": _args(lr="a b", log_interval="}"),
    "shared lists": _sizes(w2v_args=shared(40)),
    # from_pretrained would fetch them, as it would s3:// with the user's own password.
    "a tokenizer from elsewhere": _cfg(
        bpe=lambda s, c: {"_name": "gpt2", "gpt2_encoder_json": " https://example.com/encoder.json"}),
    "a tokenizer from elsewhere in old args": _args(bpe="sentencepiece", sentencepiece_model="s3://bucket/x"),
}  # fmt: skip
"""Refused whenever a checkpoint is read."""
BUILD = {
    "layers in words": _sizes(encoder_layers="1000000000"),
    # setup_task prefers `task` to `_name`.
    "another task under fairseq s other name": lambda state, canary: state["cfg"]["task"].update(
        task="speech_to_text", config_yaml="config.yaml"),
    "another criterion under fairseq s other name": _cfg(
        criterion=lambda s, c: Namespace(_name="standard", criterion="ctc", wer_args=CTC)),
    "a name that is none": _cfg(model=lambda s, c: Namespace(_name=["roberta"])),
    "an unknown task": lambda state, canary: state["cfg"]["task"].update(_name="exec"),
    "an unknown architecture": _sizes(_name="os.system", arch="os.system"),
    "a task that reads yaml": _cfg(
        task=lambda s, c: Namespace(_name="speech_to_text", data=".", config_yaml="config.yaml")),
    "a model that reads pickles": _cfg(
        model=lambda s, c: Namespace(_name="xm_transformer", load_pretrained_decoder_from="x.pt")),
    "a criterion that imports": _cfg(criterion=lambda s, c: Namespace(_name="ctc", wer_args=CTC)),
}  # fmt: skip
"""Refused before a model is built from it."""
