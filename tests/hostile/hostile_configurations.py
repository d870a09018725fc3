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


def in_old_args(state: State, canary: Path) -> None:
    options = {**vars(state["cfg"]["model"]), "arch": "fconv_lm", "decoder_layers": code(canary)}
    state["args"], state["cfg"] = Namespace(**options), None


def in_old_args_beside_a_clean_cfg(state: State, canary: Path) -> None:
    options = {**vars(state["cfg"]["model"]), "arch": "fconv_lm", "decoder_layers": code(canary)}
    state["args"] = Namespace(**options)


def in_a_task(state: State, canary: Path) -> None:
    data = state["cfg"]["task"]["data"]
    state["cfg"]["task"] = Namespace(
        _name="multilingual_translation", data=data, lang_pairs="a-b", left_pad_source=code(canary)
    )


def by_interpolation(state: State, canary: Path) -> None:
    state["cfg"]["common"]["tensorboard_logdir"] = code(canary)
    state["cfg"]["model"] = OmegaConf.create(
        {"_name": "fconv_lm", "decoder_layers": "${common.tensorboard_logdir}"}
    )


def a_reference_to_the_environment(state: State, canary: Path) -> None:
    """Not where fairseq evaluates anything, so only the rule on references refuses it."""
    state["cfg"]["common"]["tensorboard_logdir"] = "${env:HOME}"


def in_a_config_of_omegaconf(state: State, canary: Path) -> None:
    state["cfg"] = OmegaConf.create(
        {**{part: dict(vars(v)) if isinstance(v, Namespace) else v for part, v in state["cfg"].items()},
         "model": {"_name": "fconv_lm", "decoder_layers": code(canary)}}
    )  # fmt: skip


def in_a_namespace_in_a_list(state: State, canary: Path) -> None:
    inner = Namespace(_name="wav2vec2", conv_feature_layers=code(canary))
    state["cfg"]["model"] = Namespace(_name="wav2vec_ctc", w2v_path="x", w2v_args=[inner])


def in_a_node(state: State, canary: Path) -> None:
    vars(state["cfg"]["model"])["encoder_xformers_att_config"] = AnyNode(code(canary))


def in_a_node_of_a_dict(state: State, canary: Path) -> None:
    model = {**vars(state["cfg"]["model"]), "encoder_xformers_att_config": StringNode(code(canary))}
    state["cfg"]["model"] = model


def a_node_as_the_name(state: State, canary: Path) -> None:
    vars(state["cfg"]["model"]).pop("encoder_xformers_att_config", None)
    state["cfg"]["model"] = {
        StringNode("encoder_xformers_att_config"): code(canary),
        **vars(state["cfg"]["model"]),
    }


def in_a_configuration_of_fairseq(state: State, canary: Path) -> None:
    in_roberta_s_attention(state, canary)
    state["cfg"] = FairseqConfig(**{part: state["cfg"][part] for part in ("task", "model", "criterion")})


def in_a_meter(state: State, canary: Path) -> None:
    meter = SumMeter()
    options = {**vars(state["cfg"]["model"]), "encoder_xformers_att_config": code(canary)}
    vars(meter).update(options)
    state["args"] = meter


def in_yaml(state: State, canary: Path) -> None:
    in_roberta_s_attention(state, canary)
    parts = {part: dict(vars(v)) if isinstance(v, Namespace) else v for part, v in state["cfg"].items()}
    state["cfg"] = OmegaConf.to_yaml(OmegaConf.create(parts))


def a_path_as_a_name(state: State, canary: Path) -> None:
    """hydra reads `bpe=NAME` from the file NAME.yaml."""
    (canary.parent / "group.yaml").write_text("bpe: x\n", encoding="utf-8")
    place = os.path.relpath(canary.parent / "group", Path(fairseq.__file__).parent / "config" / "bpe")
    state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "bpe": place})


def a_name_that_hydra_interprets(state: State, canary: Path) -> None:
    state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "tokenizer": "{a: 1}"})


def args_of_a_wrong_kind(state: State, canary: Path) -> None:
    state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "lr": "a b", "log_interval": "}"})


def shared_lists(state: State, canary: Path) -> None:
    """A few hundred bytes that are 2 ** 40 values."""
    shared: Any = []
    for _ in range(40):
        shared = [shared, shared]
    vars(state["cfg"]["model"])["w2v_args"] = shared


def a_name_that_is_none(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name=["roberta"])


def an_unknown_task(state: State, canary: Path) -> None:
    state["cfg"]["task"]["_name"] = "exec"


def an_unknown_architecture(state: State, canary: Path) -> None:
    vars(state["cfg"]["model"]).update(_name="os.system", arch="os.system")


def a_task_that_reads_yaml(state: State, canary: Path) -> None:
    state["cfg"]["task"] = Namespace(_name="speech_to_text", data=".", config_yaml="config.yaml")


def a_model_that_reads_pickles(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="xm_transformer", load_pretrained_decoder_from="x.pt")


def _sizes(**sizes: Any) -> Any:
    def change(state: State, canary: Path) -> None:
        vars(state["cfg"]["model"]).update(sizes)

    return change


def a_criterion_that_imports(state: State, canary: Path) -> None:
    state["cfg"]["criterion"] = Namespace(_name="ctc", wer_args="('a', 'b', 1, 1)")


def another_task_under_fairseq_s_other_name(state: State, canary: Path) -> None:
    """setup_task prefers `task` to `_name`."""
    state["cfg"]["task"].update(task="speech_to_text", config_yaml="config.yaml")


def another_criterion_under_fairseq_s_other_name(state: State, canary: Path) -> None:
    state["cfg"]["criterion"] = Namespace(_name="standard", criterion="ctc", wer_args="('a', 'b', 1, 1)")


def a_tokenizer_from_elsewhere(state: State, canary: Path) -> None:
    """from_pretrained would fetch it, as it would s3:// with the user's own password."""
    state["cfg"]["bpe"] = {"_name": "gpt2", "gpt2_encoder_json": " https://example.com/encoder.json"}


def a_tokenizer_from_elsewhere_in_old_args(state: State, canary: Path) -> None:
    options = {**vars(state["cfg"]["model"]), "bpe": "sentencepiece", "sentencepiece_model": "s3://bucket/x"}
    state["args"] = Namespace(**options)


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
    **{
        change.__name__.replace("_", " "): change
        for change in (
            in_roberta_s_attention, in_old_args, in_old_args_beside_a_clean_cfg, in_a_task, by_interpolation,
            a_reference_to_the_environment,
            in_a_config_of_omegaconf, in_a_namespace_in_a_list, in_a_node, in_a_node_of_a_dict,
            a_node_as_the_name, in_a_configuration_of_fairseq, in_a_meter, in_yaml, a_path_as_a_name,
            a_name_that_hydra_interprets, args_of_a_wrong_kind, shared_lists,
            a_tokenizer_from_elsewhere, a_tokenizer_from_elsewhere_in_old_args,
        )
    },
}  # fmt: skip
"""Refused whenever a checkpoint is read."""
BUILD = {
    "layers in words": _sizes(encoder_layers="1000000000"),
    **{
        change.__name__.replace("_", " "): change
        for change in (
            another_task_under_fairseq_s_other_name, another_criterion_under_fairseq_s_other_name,
            a_name_that_is_none, an_unknown_task, an_unknown_architecture, a_task_that_reads_yaml,
            a_model_that_reads_pickles, a_criterion_that_imports,
        )
    },
}  # fmt: skip
"""Refused before a model is built from it."""
