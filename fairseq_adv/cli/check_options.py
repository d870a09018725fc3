"""Refuses what ``fairseq-train`` does not know, and says what may have been meant."""

from __future__ import annotations

import argparse
import difflib
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING, ContextManager
from unittest import mock

from fairseq_adv.data.errors import DataError

if TYPE_CHECKING:
    from fairseq_adv.data.train_options import TrainOptions

# What other programs, papers and our own tables call them; of several, the first that exists is meant.
_OPTIONS = {
    "adv-epsilon": "adv-max-norm", "alpha": "vat-alpha infobert-alpha rdrop-alpha adv-lr", "bs": "batch-size",
    "epochs": "max-epoch",
    "eps": "adv-max-norm vat-epsilon r3f-epsilon noise-size",
    "epsilon": "adv-max-norm vat-epsilon r3f-epsilon noise-size",
    "gradient-accumulation-steps": "update-freq", "learning-rate": "lr", "logging-steps": "log-interval",
    "max-seq-length": "max-positions", "max-steps": "max-update", "method": "criterion", "model": "encoder",
    "num-train-epochs": "max-epoch", "out": "save-dir", "output-dir": "save-dir",
    "per-device-train-batch-size": "batch-size", "steps": "adv-steps vat-steps",
    "train-batch-size": "batch-size", "warmup-steps": "warmup-updates",
}  # fmt: skip
_UNBOUNDED = "freelb --adv-relative --adv-max-norm 0"
_FGM = "--adv-relative --adv-steps 1 --adv-init-mag 0 --adv-max-norm 0.01 --adv-lr 0.01 --adv-clean-weight 1"
_AUTO = "flooding --flood-level auto --accordance-interval 100"
_METHODS = {
    "alum": "alum_vat", "flooding-auto": _AUTO, "flooding-x": _AUTO, "freelb++": _UNBOUNDED,
    "fgm": f"pgd {_FGM}", "freelb_plus_plus": _UNBOUNDED,
    "neftune": "noise", "r-drop": "rdrop", "r4f": "r3f --spectral-norm-classification-head",
    "standard-3x": "standard --max-epoch 9", "vat": "alum_vat",
}  # fmt: skip
_OWN = ("--encoder", "--workers", "--dry-run")  # of fairseq-adv train


def check_choices(options: TrainOptions) -> None:
    """Raises DataError if there is no such criterion, task or architecture."""
    from fairseq.criterions import CRITERION_REGISTRY
    from fairseq.models import ARCH_MODEL_REGISTRY
    from fairseq.tasks import TASK_REGISTRY

    from fairseq_adv.criterions import methods

    _check_choice("criterion", options.value("--criterion"), CRITERION_REGISTRY, methods())
    _check_choice("task", options.value("--task"), TASK_REGISTRY, _ours(TASK_REGISTRY))
    _check_choice("arch", options.value("--arch"), ARCH_MODEL_REGISTRY, _ours(ARCH_MODEL_REGISTRY))


def checked(data: str, options: TrainOptions) -> argparse.Namespace:
    """The arguments of ``fairseq-train``, as its parser reads them.

    Raises:
        DataError: an option does not exist, or has a value that it can't have.
    """
    from fairseq import options as fairseq_options

    from fairseq_adv.fairseq_patches.run_options import check_arguments

    criterion, parser = options.value("--criterion"), fairseq_options.get_training_parser()
    with mistakes_in_one_line():
        words = [data, *options.words()]
        args, unknown = fairseq_options.parse_args_and_arch(parser, words, parse_known=True)
    for word in unknown:
        if word.startswith("--"):
            raise DataError(
                _no_option(word.partition("=")[0], criterion, list(parser._option_string_actions))
            )
    if unknown:
        raise DataError(
            f"{unknown[0]}: belongs to no option. Leave it out, or put the option's whole value in quotes"
        )
    check_arguments(args)
    namespace: argparse.Namespace = args
    return namespace


def mistakes_in_one_line() -> ContextManager[object]:
    """In this context argparse raises DataError instead of printing 400 lines of usage."""

    def refuse(parser: argparse.ArgumentParser, message: str) -> None:
        text = message.replace("invalid <lambda> value", "invalid value")  # of fairseq's lists of numbers
        raise DataError(f"{text} (see fairseq-train --help)")

    return mock.patch.object(argparse.ArgumentParser, "error", refuse)


def _ours(registry: dict[str, type]) -> list[str]:
    return [name for name, entry in registry.items() if entry.__module__.startswith("fairseq_adv.")]


def _check_choice(option: str, name: str, known: Collection[str], plugin_names: Iterable[str]) -> None:
    if name in known or not name:
        return
    names = sorted(plugin_names)
    lookup = {one.replace("_", "-").lower(): one for one in [*known, *names]}  # ours last: they win
    meant = _METHODS.get(name.lower().replace(" ", "")) if option == "criterion" else None
    if name.replace("_", "-").lower() in lookup:
        meant = lookup[name.replace("_", "-").lower()]
    near = nearest(name.replace("_", "-").lower(), [one.replace("_", "-") for one in names], list(lookup))
    suggestions = [meant] if meant else [lookup[one] for one in near]
    listed = f" Ours are {', '.join(names)}; fairseq has more." if names else ""
    raise DataError(f"--{option} {name}: no such {option}.{_did_you_mean(suggestions)}{listed}")


def _no_option(option: str, criterion: str, known: Sequence[str]) -> str:
    """What is wrong with an option that is not known: other criterions may have it."""
    from fairseq_adv.criterions import methods

    field = option[2:].replace("-", "_")
    owners = sorted(name for name, method in methods().items() if field in method.own_options())
    if owners:
        listed = ", ".join(owners)
        return f"{option}: an option of {listed}, not of {criterion}. Leave it out, or change --criterion"
    method = methods().get(criterion)
    flags = [] if method is None else [f"--{name.replace('_', '-')}" for name in sorted(method.own_options())]
    all_known = [*_OWN, *known]
    meant = next(
        (f"--{one}" for one in _OPTIONS.get(option[2:], "").split() if f"--{one}" in all_known), None
    )
    suggestions = [meant] if meant else nearest(option, flags, all_known)
    is_ours = method is not None and method.__module__.startswith("fairseq_adv.")
    hint = f" fairseq-adv options {criterion} lists those of the criterion" if is_ours else ""
    return f"{option}: no such option.{_did_you_mean(suggestions)}{hint or ' See fairseq-train --help'}"


def nearest(name: str, first: Sequence[str], others: Sequence[str]) -> list[str]:
    """Up to three names that look like it: those of ``first`` come first."""
    similar = []
    for names in (first, others):
        similar += [one for one in names if len(one) > 3 and name.startswith(one)]
        similar += difflib.get_close_matches(name, names, n=3, cutoff=0.7)
    return list(dict.fromkeys(similar))[:3]


def _did_you_mean(names: Sequence[str]) -> str:
    *most, last = names if names else [""]
    return "" if not last else f" Did you mean {', '.join(most)}{' or ' if most else ''}{last}?"
