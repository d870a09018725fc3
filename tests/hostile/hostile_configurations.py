"""Configurations that run code or take all memory; the pickles that hold them are clean."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fairseq
import torch
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
    "of another kind": lambda code: "{'a': 1}",
    "a list of a trillion": lambda code: "[(1, 1)] * 10 ** 12",
    "a list of a billion": lambda code: "[(1, 1)] * 1000000000",
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


def a_long_list(state: State, canary: Path) -> None:
    """hydra would take a minute to convert it."""
    state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "lr": [0.1] * 20_000})


def a_long_list_in_a_text(state: State, canary: Path) -> None:
    """fairseq turns it into a list."""
    state["args"] = Namespace(**{**vars(state["cfg"]["model"]), "lr": "0," * 40_000})


def shared_lists(state: State, canary: Path) -> None:
    """A few hundred bytes that are 2 ** 40 values."""
    shared: Any = []
    for _ in range(40):
        shared = [shared, shared]
    vars(state["cfg"]["model"])["w2v_args"] = shared


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


def _sizes(**sizes: Any) -> Any:
    def change(state: State, canary: Path) -> None:
        vars(state["cfg"]["model"]).update(sizes)

    return change


def a_criterion_that_imports(state: State, canary: Path) -> None:
    state["cfg"]["criterion"] = Namespace(_name="ctc", wer_args="('a', 'b', 1, 1)")


def a_billion_classes(state: State, canary: Path) -> None:
    state["cfg"]["task"]["num_classes"] = 1_000_000_000


def a_billion_positions(state: State, canary: Path) -> None:
    """The model takes them from its task."""
    state["cfg"]["task"]["max_positions"] = 1_000_000_000


def another_task_under_fairseq_s_other_name(state: State, canary: Path) -> None:
    """setup_task prefers `task` to `_name`."""
    state["cfg"]["task"].update(task="speech_to_text", config_yaml="config.yaml")


def another_criterion_under_fairseq_s_other_name(state: State, canary: Path) -> None:
    state["cfg"]["criterion"] = Namespace(_name="standard", criterion="ctc", wer_args="('a', 'b', 1, 1)")


def many_texts(state: State, canary: Path) -> None:
    """hydra would take half a minute to convert them."""
    texts = dict.fromkeys(("restore_file", "tensorboard_logdir", "results_path", "log_file"), "x'" * 60_000)
    state["args"] = Namespace(**{**vars(state["cfg"]["model"]), **texts, "plasma_path": "x'" * 60_000})


def a_tokenizer_from_elsewhere(state: State, canary: Path) -> None:
    """from_pretrained would fetch it, as it would s3:// with the user's own password."""
    state["cfg"]["bpe"] = {"_name": "gpt2", "gpt2_encoder_json": " https://example.com/encoder.json"}


def a_tokenizer_from_elsewhere_in_old_args(state: State, canary: Path) -> None:
    options = {**vars(state["cfg"]["model"]), "bpe": "sentencepiece", "sentencepiece_model": "s3://bucket/x"}
    state["args"] = Namespace(**options)


def expanded_weights(state: State, canary: Path) -> None:
    """One number that is shown as many."""
    state["model"]["x"] = torch.zeros(1).expand(1 << 40)
    vars(state["cfg"]["model"]).update(encoder_embed_dim=20_000, encoder_ffn_embed_dim=80_000)


def repeated_weights(state: State, canary: Path) -> None:
    """One tensor under many names."""
    state["model"].update(dict.fromkeys((f"x{k}" for k in range(20_000)), torch.zeros(100_000)))
    vars(state["cfg"]["model"]).update(encoder_embed_dim=10_000, encoder_ffn_embed_dim=40_000)


def an_expanded_head(state: State, canary: Path) -> None:
    state["cfg"]["task"] = {"_name": "masked_lm", "data": f"{state['cfg']['task']['data']}/input0"}
    head = "classification_heads.x"
    state["model"].update({f"{head}.dense.weight": torch.zeros(32, 32)})
    state["model"].update({f"{head}.out_proj.weight": torch.zeros(1).expand(1 << 33, 32)})
    vars(state["cfg"]["model"])["load_checkpoint_heads"] = True


def _built(task: str, model: str, **sizes: Any) -> Any:
    """A model of another kind."""

    def change(state: State, canary: Path) -> None:
        state["cfg"]["task"] = {"_name": task, "data": f"{state['cfg']['task']['data']}/input0"}
        state["cfg"]["model"] = Namespace(_name=model, arch=model, max_positions=64, **sizes)

    return change


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
            a_name_that_hydra_interprets, args_of_a_wrong_kind, a_long_list,
            a_long_list_in_a_text, shared_lists, parts_within_parts, many_texts,
            a_tokenizer_from_elsewhere, a_tokenizer_from_elsewhere_in_old_args,
        )
    },
}  # fmt: skip
"""Refused whenever a checkpoint is read."""
OFTEN = (
    "fconv_lm",
    "criterion",
    "in bytes",
    "behind a list",
    "of another kind",
    "a list of a trillion",
    "a long text",
)
"""Of the models, parts and expressions in RUN_CODE, which go through one check: those in the default lane."""
BUILD = {
    "layers": _sizes(encoder_layers=1_000_000_000),
    "width": _sizes(encoder_embed_dim=1_000_000_000),
    "inner width": _sizes(encoder_ffn_embed_dim=1_000_000_000),
    "all a little": _sizes(encoder_layers=900, encoder_embed_dim=2000, encoder_ffn_embed_dim=8000),
    "layers in words": _sizes(encoder_layers="1000000000"),
    "albert layers": _sizes(_name="albert_base", encoder_layers=1_000_000_000),
    "albert width": _sizes(_name="albert_base", encoder_embed_dim=1_000_000_000),
    "albert words": _sizes(_name="albert_base", encoder_input_dim=1_000_000_000),
    "width by its short name": _sizes(embed_dim=20_000, ffn_embed_dim=80_000),
    "layers to keep": _sizes(encoder_layers_to_keep=",".join("0" * 60_000)),
    "masked_lm": _built("masked_lm", "masked_lm", encoder_embed_dim=20_000, encoder_attention_heads=8),
    "bart": _built("masked_lm", "bart_base", encoder_embed_dim=24_000, decoder_embed_dim=24_000),
    "transformer_lm": _built("language_modeling", "transformer_lm", decoder_embed_dim=20_000),
    "layers of a decoder": _built("language_modeling", "transformer_lm", decoder_layers=1_000_000_000),
    **{
        change.__name__.replace("_", " "): change
        for change in (
            another_task_under_fairseq_s_other_name, another_criterion_under_fairseq_s_other_name,
            expanded_weights, repeated_weights, an_expanded_head,
            a_name_that_is_none, an_unknown_task, an_unknown_architecture, a_task_that_reads_yaml,
            a_model_that_reads_pickles, a_criterion_that_imports, a_billion_classes, a_billion_positions,
        )
    },
}  # fmt: skip
"""Refused before a model is built from it."""
