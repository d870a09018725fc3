"""Configurations that run code or take all memory; the pickles that hold them are clean."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

State = dict[str, Any]


def code(canary: Path) -> str:
    """An expression that makes the canary; no path of a temporary folder holds quotes."""
    return f"__import__('pathlib').Path('{canary}').touch()"


def _model(name: str, option: str) -> Any:
    def change(state: State, canary: Path) -> None:
        state["cfg"]["model"] = Namespace(_name=name, arch=name, **{option: code(canary)})

    return change


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


def in_bytes(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers=code(canary).encode())


def by_interpolation(state: State, canary: Path) -> None:
    state["cfg"]["common"]["tensorboard_logdir"] = code(canary)
    state["cfg"]["model"] = OmegaConf.create(
        {"_name": "fconv_lm", "decoder_layers": "${common.tensorboard_logdir}"}
    )


def in_a_config_of_omegaconf(state: State, canary: Path) -> None:
    state["cfg"] = OmegaConf.create(
        {**{part: dict(vars(v)) if isinstance(v, Namespace) else v for part, v in state["cfg"].items()},
         "model": {"_name": "fconv_lm", "decoder_layers": code(canary)}}
    )  # fmt: skip


def in_a_namespace_in_a_list(state: State, canary: Path) -> None:
    inner = Namespace(_name="wav2vec2", conv_feature_layers=code(canary))
    state["cfg"]["model"] = Namespace(_name="wav2vec_ctc", w2v_path="x", w2v_args=[inner])


def behind_a_list(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers=f"[(1, 1)] + [{code(canary)}]")


def as_an_attribute_of_a_literal(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(
        _name="fconv_lm", decoder_layers="().__class__.__base__.__subclasses__()"
    )


def as_a_lambda(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers=f"(lambda: {code(canary)})()")


def as_a_comprehension(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers=f"[{code(canary)} for _ in [1]]")


def as_a_formatted_string(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers=f'f"{{{code(canary)}}}"')


def of_another_kind(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers="{'a': 1}")


def a_list_of_a_trillion(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers="[(1, 1)] * 10 ** 12")


def a_list_of_a_billion(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers="[(1, 1)] * 1000000000")


def a_thousand_brackets(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers="[" * 1000 + "]" * 1000)


def a_long_text(state: State, canary: Path) -> None:
    state["cfg"]["model"] = Namespace(_name="fconv_lm", decoder_layers="1," * 10_000_000)


def parts_within_parts(state: State, canary: Path) -> None:
    part: Any = {}
    for _ in range(200):
        part = {"x": part}
    state["cfg"]["common"]["x"] = part


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


def _sizes(**sizes: int) -> Any:
    def change(state: State, canary: Path) -> None:
        vars(state["cfg"]["model"]).update(sizes)

    return change


def a_billion_classes(state: State, canary: Path) -> None:
    state["cfg"]["task"]["num_classes"] = 1_000_000_000


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
    **{
        change.__name__.replace("_", " "): change
        for change in (
            in_roberta_s_attention, in_old_args, in_old_args_beside_a_clean_cfg, in_a_task, in_bytes,
            by_interpolation, in_a_config_of_omegaconf, in_a_namespace_in_a_list, behind_a_list,
            as_an_attribute_of_a_literal, as_a_lambda, as_a_comprehension, as_a_formatted_string,
            of_another_kind, a_list_of_a_trillion, a_list_of_a_billion, a_thousand_brackets, a_long_text,
            parts_within_parts,
        )
    },
}  # fmt: skip
"""Refused whenever a checkpoint is read."""
BUILD = {
    "layers": _sizes(encoder_layers=1_000_000_000),
    "width": _sizes(encoder_embed_dim=1_000_000_000),
    "inner width": _sizes(encoder_ffn_embed_dim=1_000_000_000),
    "positions": _sizes(max_positions=1_000_000_000),
    "all a little": _sizes(encoder_layers=5000, encoder_embed_dim=20_000, encoder_ffn_embed_dim=80_000),
    **{
        change.__name__.replace("_", " "): change
        for change in (
            a_name_that_is_none, an_unknown_task, an_unknown_architecture, a_task_that_reads_yaml,
            a_model_that_reads_pickles, a_billion_classes,
        )
    },
}  # fmt: skip
"""Refused before a model is built from it."""
