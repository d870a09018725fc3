"""Extension of griffe for the API pages: Sphinx roles become links, and options a table.

A role that names nothing is a warning, which ``mkdocs build --strict`` turns into a failure.
"""

from __future__ import annotations

import ast
import html
import logging
import re
from typing import Any

import griffe

logger = logging.getLogger("mkdocs.hooks.site_docstrings")
_MARKUP = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`~?(?P<name>[^`]+)`|``.+?``|`[^`]+`", re.S)
_NOT_MARKUP = re.compile(r"(?<=\S)[ ]?\*+|<(?=[A-Za-z/])")  # a product, or a token such as <s>


class Docstrings(griffe.Extension):
    """Works on the docstrings once the whole package has been read, so that every name can be found."""

    def on_package(self, *, pkg: griffe.Module, **others: Any) -> None:
        self._convert(pkg, pkg)

    def _convert(self, one: griffe.Object, package: griffe.Module) -> None:
        if one.docstring:
            one.docstring.value = _as_markdown(one.docstring.value, one, package)
        if isinstance(one, griffe.Class) and one.docstring:
            one.docstring.value += _table_of_options(one)
        for member in one.members.values():
            if not isinstance(member, griffe.Alias):
                self._convert(member, package)


def _table_of_options(config: griffe.Class) -> str:
    """Of a dataclass whose fields have a help, as fairseq's options do; else empty."""
    rows = []
    for field in config.members.values():
        if isinstance(field, griffe.Attribute) and str(field.value).startswith(
            ("field(", "option(", "steps(")
        ):
            call = ast.parse(str(field.value), mode="eval").body
            assert isinstance(call, ast.Call)
            default, text = _default_and_help(call, config)
            if text:
                option = f"`--{field.name.replace('_', '-')}`"
                text = _escaped(" ".join(text.split())).replace("|", "&#124;")
                rows.append(f"| {option} | {default} | {text} |")
    return "\n".join(["\n\n| option | default | |", "|---|---|---|", *rows]) if rows else ""


def _default_and_help(call: ast.Call, config: griffe.Class) -> tuple[str, str]:
    """Of a field; without a help if it is hidden."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    function = getattr(call.func, "id", "")
    if function == "field":
        default, metadata = given.get("default"), given.get("metadata")
        help_text = metadata.values[0] if isinstance(metadata, ast.Dict) else None
    elif function == "option":
        default, help_text = call.args[:2]
    else:  # criterions/adversarial.py
        default, help_text = given.get("default", ast.Constant(3)), call.args[0]
    return "" if default is None else _shown(default), _text(help_text, config)


def _text(node: ast.expr | None, config: griffe.Class) -> str:
    """Of a string, of a constant's name, or of a sum of them; else empty."""
    if isinstance(node, ast.BinOp):
        return _text(node.left, config) + _text(node.right, config)
    if isinstance(node, ast.Name):
        named = config.module[node.id]
        named = named.final_target if named.is_alias else named
        return str(ast.literal_eval(str(named.value)))
    return str(node.value) if isinstance(node, ast.Constant) else ""


def _shown(default: ast.expr) -> str:
    """As a command line has it."""
    value = getattr(default, "value", None)
    return f"`{value if isinstance(value, str) and value else ast.unparse(default)}`"


def _as_markdown(text: str, owner: griffe.Object, package: griffe.Module) -> str:
    parts, end = [], 0
    for found in _MARKUP.finditer(text):
        parts.append(_escaped(text[end : found.start()]))
        parts.append(_link(found["name"], owner, package) if found["name"] else found[0])
        end = found.end()
    return "".join([*parts, _escaped(text[end:])])


def _escaped(text: str) -> str:
    return _NOT_MARKUP.sub(lambda found: html.escape(found[0]).replace("*", r"\*"), text)


def _link(name: str, owner: griffe.Object, package: griffe.Module) -> str:
    shown = html.escape(name.lstrip(".").rsplit(".", 1)[-1] if name.startswith(package.name) else name)
    path = _path_of(name, owner, package)
    if path is None:
        if re.search(rf"^[A-Z_, ]*\b{name}\b[A-Z_, ]* = ", owner.module.source, re.M):
            return f"`{shown}`"  # griffe knows no name that is assigned together with others
        logger.warning("%s: its docstring refers to %s, which was not found", owner.path, name)
        return f"`{shown}`"
    return f'<autoref optional identifier="{path}"><code>{shown}</code></autoref>'


def _path_of(name: str, owner: griffe.Object, package: griffe.Module) -> str | None:
    """The full name of what a docstring of ``owner`` calls ``name``; ``None`` if there is no such thing."""
    first, *rest = name.lstrip(".").split(".")
    if name.startswith("."):
        return _member(owner.module.parent, [first, *rest])
    if first == package.name:
        return _member(package, rest)
    scope: griffe.Object | griffe.Alias | None = owner
    while scope is not None:
        found = _member(scope, [first, *rest])
        if found is not None:
            return found
        scope = scope.parent
    return None


def _member(owner: Any, names: list[str]) -> str | None:
    for name in names:
        owners = [owner, *owner.mro()] if owner.is_class else [owner]
        owner = next((one.members[name] for one in owners if name in one.members), None)
        if owner is None:
            return None
        if owner.is_alias:
            owner = owner.final_target
    return str(owner.path)
