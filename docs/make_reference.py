"""Writes the pages made from the code: docs/reference/*.md, and tables in README.md, the chat guide and the security model."""

from __future__ import annotations

import ast
import inspect
import json
import re
import typing
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import click

from pinfold.app import config_schema
from pinfold.app.config import databases, layers, schema
from pinfold.events import commands, event_types, messages
from pinfold.front.chat.commands.table import COMMANDS
from pinfold.front.cli.main import cli
from pinfold.policy.judge import Row as Rule
from pinfold.sandbox import provider_named
from pinfold.sandbox.providers.doctor import LEVELS, level_rows

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs" / "reference"
_MADE = "Made by `docs/make_reference.py`; do not edit."
_WIDTH = 96


# What the code says of a struct


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    name: str
    type: str
    default: str
    """Empty where it must be given."""
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StructPage:
    name: str
    words: str
    fields: tuple[Field, ...]


def describe_structs(module: ModuleType) -> dict[str, StructPage]:
    """Every class of a module, with the docstring under each field, which only the source has."""
    tree = ast.parse(inspect.getsource(module))
    return {
        node.name: StructPage(
            name=node.name,
            words=_one_line(ast.get_docstring(node) or ""),
            fields=(*_fields(node, vars(module)), *_inherited_fields(getattr(module, node.name))),
        )
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


def _inherited_fields(struct: type) -> Iterator[Field]:
    for base in struct.__mro__[1:]:
        if base.__module__.startswith("pinfold."):
            (node,) = ast.parse(inspect.getsource(base)).body
            assert isinstance(node, ast.ClassDef)
            yield from _fields(node, vars(import_module(base.__module__)))


def _fields(node: ast.ClassDef, known: dict[str, Any]) -> Iterator[Field]:
    for here, following in zip(node.body, [*node.body[1:], None], strict=True):
        if not (isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name)):
            continue
        default = "" if here.value is None else ast.unparse(here.value)
        if default.isidentifier() and default in known:
            default = repr(known[default])
        name = here.target.id
        if default.startswith(("field(", "msgspec.field(")):  # a default that is worked out, or another name
            renamed = re.search(r"name='(\w+)'", default)
            name, default = (renamed[1], "") if renamed else (name, "worked out")
        yield Field(name=name, type=ast.unparse(here.annotation), default=default, words=_words_under(following))


def _words_under(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
        return _one_line(node.value.value)
    return ""


def closed_sets(module: ModuleType) -> dict[str, tuple[tuple[str, ...], str]]:
    """The values of every named Literal, and its docstring."""
    found: dict[str, tuple[tuple[str, ...], str]] = {}
    body = ast.parse(inspect.getsource(module)).body
    for here, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(here, ast.AnnAssign) and isinstance(here.target, ast.Name):
            values = typing.get_args(getattr(module, here.target.id))
            if values and all(isinstance(value, str) for value in values):
                found[here.target.id] = (values, _words_under(following))
    return found


# Markdown


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def table(*lines: tuple[str, ...]) -> str:
    head, *rest = lines
    rows = [head, ("---",) * len(head), *rest]
    return "".join(f"| {' | '.join(map(_cell, row))} |\n" for row in rows)


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _field_rows(fields: tuple[Field, ...]) -> str:
    if not fields:
        return ""
    return table(
        ("field", "type", "default", ""),
        *((_code(one.name), _code(one.type), _code(one.default), one.words) for one in fields),
    )


# The pages


def cli_page() -> str:
    parts = [f"# Every command\n\n{_MADE}\n"]
    parts.append(
        "Exit codes: 0 done, 1 the task failed, 2 usage or configuration, 75 try again later, 130 interrupted.\n"
    )
    parts += [f"## {path}\n\n```text\n{text}\n```\n" for path, text in _helps(cli, "pinfold", None)]
    return "\n".join(parts)


def _helps(command: click.Command, path: str, above: click.Context | None) -> Iterator[tuple[str, str]]:
    given: dict[str, Any] = {**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=above, **given)
    lines = command.get_help(context).splitlines()
    yield path, "\n".join(line.rstrip() for line in lines)
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and not inner.hidden:
                yield from _helps(inner, f"{path} {name}", context)


def config_page() -> str:
    known = describe_structs(schema) | describe_structs(databases)
    parts = [f"# Configuration\n\n{_MADE}\n"]
    parts.append(
        "Your settings are in `~/.config/pinfold/config.toml` ([schema](config.schema.json)). A trusted project's `pinfold.toml` may lower\n"
        "limits and add to some lists. `PINFOLD_<SECTION>_<KEY>` in the environment overrides both, and flags override everything.\n"
        "`pinfold config show --origin` lists every value and where it comes from.\n"
    )
    for section in known["Config"].fields:
        name = re.sub(r"^dict\[str, (\w+)\]$", r"\1", section.type)
        title = f"{section.name}.NAME" if name != section.type else section.name
        struct = known[name]
        parts.append(f"## [{title}]\n\n{struct.words}\n\n{_settings(section.name, struct)}")
    return "\n".join(parts)


def _settings(section: str, struct: StructPage) -> str:
    return table(
        ("key", "type", "default", "a project's own file may", ""),
        *(
            (_code(one.name), _toml(one.type), _code(_preset(one)), _projects(f"{section}.{one.name}"), one.words)
            for one in struct.fields
        ),
    )


_TOML = {
    "str": "text",
    "float": "number",
    "int": "whole number",
    "bool": "true or false",
    "tuple[str, ...]": "list of texts",
    "dict[str, str]": "table of texts",
    "dict[str, Json]": "table",
}


def _toml(annotation: str) -> str:
    plain = annotation.removesuffix(" | None")
    if plain.startswith("Literal["):
        values = ast.literal_eval(plain.removeprefix("Literal"))
    else:
        values = typing.get_args(vars(schema).get(plain))
    return " ".join(f"`{value}`" for value in values) or _TOML[plain]


def _preset(one: Field) -> str:
    """The default as TOML; empty if there is none."""
    if one.default in ("", "None", "worked out"):
        return ""
    return {"()": "[]", "True": "true", "False": "false"}.get(one.default, one.default.replace("'", '"'))


def _projects(dotted: str) -> str:
    private = vars(layers)
    return "lower it" if dotted in private["_LIMITS"] else "add to it" if dotted in private["_ADDED"] else ""


def events_page() -> str:
    known = describe_structs(event_types) | describe_structs(messages)
    asked = describe_structs(commands)
    parts = [f"# Events and commands\n\n{_MADE}\n"]
    parts.append(
        "A session is its log: numbered events that never change. `pinfold run --json` and `pinfold export --to jsonl` print them, one JSON\n"
        "object per line; `kind` is the name used here. New versions may add fields; existing fields stay.\n"
    )
    parts.append("## Events\n")
    parts += [_struct(known[name]) for name in _names(event_types.Event) if name != "Unknown"]
    parts.append("## Broadcast only\n\nThese are never in the log: an event with the whole follows.\n")
    parts += [_struct(known[name]) for name in _names(event_types.Delta)]
    parts.append("## Commands\n\nWhat a front end may submit to a session.\n")
    parts += [_struct(asked[name]) for name in _names(commands.Command)]
    parts.append("## Parts of them\n")
    parts += [_struct(known[name]) for name in _parts(known)]
    parts.append("## Closed sets\n")
    sets = closed_sets(event_types) | closed_sets(messages)
    parts.append(
        table(
            ("name", "values", ""),
            *((_code(name), ", ".join(map(_code, values)), words) for name, (values, words) in sets.items()),
        )
    )
    return "\n".join(parts)


def _names(union: Any) -> list[str]:
    return [member.__name__ for member in typing.get_args(union)]


def _parts(known: dict[str, StructPage]) -> list[str]:
    """Structs that events and commands contain, directly or not."""
    found: list[str] = []
    open_ = [*_names(event_types.Event), *_names(commands.Command)]
    seen = set(open_)
    while open_:
        struct = known.get(open_.pop(0))
        for name in re.findall(r"\w+", " ".join(one.type for one in struct.fields)) if struct else ():
            inner = _names(messages.Action) if name == "Action" else [name]
            new = [one for one in inner if one in known and one not in seen]
            seen.update(new)
            open_ += new
            found += new
    return found


def _struct(struct: StructPage) -> str:
    words = f"{struct.words}\n\n" if struct.words else ""
    return f"### {struct.name}\n\n{words}{_field_rows(struct.fields)}".rstrip() + "\n"


# Where it runs


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    name: str
    level: str
    """What `--sandbox auto` chooses there."""
    tried: str


PLACES = (
    Place(name="Linux, full", level="namespaces", tried="tested with every change"),
    Place(name="Linux, lite", level="landlock", tried="tested with every change"),
    Place(
        name="containers",
        level="landlock",
        tried="**Docker's defaults not run for real**; `namespaces` where a container allows them",
    ),
    Place(name="WSL2", level="namespaces", tried="**not run for real**; it has a Linux kernel, so it should work"),
    Place(
        name="macOS", level="unsafe-local", tried="**not run for real**; no isolation, so it must be asked for by name"
    ),
)
_SHOWN = {
    "files and processes outside are closed": "code is isolated",
    "no network outside": "code has no network",
    "secrets in the workspace": "secrets in the workspace",
    "branches of live data, undo in milliseconds": "branches, undo in milliseconds",
    "variables after a restart": "variables after a restart",
    "sockets of its own (a local web server)": "sockets of its own",
    "data given with `--data`": "`--data`",
}
"""Rows of the sandbox table that interest a newcomer, and their names in the README."""


def where_it_runs() -> str:
    known = level_rows()
    lines = [("", *(place.name for place in PLACES)), ("sandbox", *(f"`{place.level}`" for place in PLACES))]
    lines += [(name, *(known[what][place.level] for place in PLACES)) for what, name in _SHOWN.items()]
    lines.insert(4, ("hosts you allow can be reached", *(_reaches(place.level) for place in PLACES)))
    lines.append(("tried", *(place.tried for place in PLACES)))
    return table(*lines)


def _reaches(level: str) -> str:
    has = provider_named(level).capabilities
    return "yes" if has.egress else "no" if has.isolated else "every host can"


def what_is_asked() -> str:
    """The table that policy judges by."""
    rules = vars(import_module("pinfold.policy.judge"))  # by that name the room's door gives a function
    known = [row for row in rules.values() if isinstance(row, Rule)]
    modes: tuple[messages.Mode, ...] = typing.get_args(messages.Mode)
    return table(
        ("", *(f"`{mode}`" for mode in modes)), *((row.name, *(row.answer(mode) for mode in modes)) for row in known)
    )


def chat_commands() -> str:
    """As /help has them."""
    return table(
        ("command", ""),
        *((_code(f"/{one.usage.removeprefix('/')}"), one.words) for one in COMMANDS.values()),
    )


def with_table(text: str, name: str, content: str) -> str:
    """The page with the text between the markers of this name replaced."""
    begin, end = f"<!-- {name}: made by docs/make_reference.py -->\n", f"<!-- end of {name} -->"
    before, mark, rest = text.partition(begin)
    _, closing, after = rest.partition(end)
    if not (mark and closing):
        raise ValueError(f"the marks of {name!r} are missing")
    return f"{before}{begin}\n{content}\n{closing}{after}"


def pages() -> dict[Path, str]:
    """The content that each generated page should have now."""
    readme, guide = ROOT / "README.md", ROOT / "docs" / "guide"
    security, chat = guide / "security-model.md", guide / "chat.md"
    return {
        REFERENCE / "cli.md": cli_page(),
        REFERENCE / "config.md": config_page(),
        REFERENCE / "config.schema.json": json.dumps(config_schema(), indent=2) + "\n",
        REFERENCE / "events.md": events_page(),
        readme: with_table(readme.read_text(encoding="utf-8"), "where it runs", where_it_runs()),
        chat: with_table(chat.read_text(encoding="utf-8"), "commands of the chat", chat_commands()),
        security: with_table(security.read_text(encoding="utf-8"), "what is asked", what_is_asked()),
    }


assert {place.level for place in PLACES} == set(LEVELS)

if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
