"""How the house reads: size, names, layers, loose ends. Run it in a clone: `python3 bench/house.py [--before COMMIT]`

Prints each figure beside its goal, and for a missed goal the first places to look at. `--before` adds the figures of another
commit, read through `git archive`. Needs Python 3.11 and nothing else. Exits with 1 if a goal is missed.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import tokenize
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib.util import resolve_name
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHOWN = 5
"""Places named below a missed goal."""

LONE_LINES, TINY_LINES = 80, 50
GERUND_NOUNS = frozenset(
    [
        "accounting",
        "billing",
        "binding",
        "bindings",
        "caching",
        "embedding",
        "embeddings",
        "encoding",
        "landing",
        "logging",
        "mapping",
        "matching",
        "packaging",
        "parsing",
        "ping",
        "polling",
        "pricing",
        "rendering",
        "routing",
        "setting",
        "settings",
        "streaming",
        "string",
        "testing",
        "thinking",
        "tracing",
    ]
)
IRREGULAR_PARTICIPLES = frozenset(
    [
        "become",
        "begun",
        "bought",
        "bound",
        "brought",
        "built",
        "caught",
        "chosen",
        "come",
        "dealt",
        "done",
        "drawn",
        "felt",
        "found",
        "given",
        "gone",
        "grown",
        "heard",
        "held",
        "kept",
        "known",
        "led",
        "left",
        "lost",
        "made",
        "meant",
        "met",
        "paid",
        "redone",
        "said",
        "seen",
        "sent",
        "shown",
        "sold",
        "spent",
        "spoken",
        "stood",
        "struck",
        "taken",
        "taught",
        "thought",
        "thrown",
        "told",
        "torn",
        "undone",
        "woken",
        "won",
        "worn",
        "written",
    ]
)
NOT_PARTICIPLES = frozenset(
    ["embed", "exceed", "feed", "need", "proceed", "scripted", "seed", "shed", "speed", "succeed"]
)
"""Verbs and nouns, and the name of a model that users type (`scripted:`)."""
NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
}
IGNORE = re.compile(r"#\s*(noqa|type:\s*ignore|pyright:\s*ignore)")
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    what: str
    value: int | None
    goal: int
    places: list[str]

    @property
    def holds(self) -> bool:
        return self.value is not None and self.value <= self.goal

    @property
    def shown(self) -> str:
        return "none" if self.value is None else f"{self.value:,}"


@dataclass(frozen=True)
class Module:
    name: str
    path: Path
    source: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.source)

    @cached_property
    def tokens(self) -> list[tokenize.TokenInfo]:
        return list(tokenize.generate_tokens(io.StringIO(self.source).readline))

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def word(self) -> str:
        return self.name.rpartition(".")[2].lstrip("_")

    @property
    def lines(self) -> int:
        return self.source.count("\n")

    @cached_property
    def code_lines(self) -> int:
        """Lines with code on them: no blank lines, comments or docstrings."""
        texts = [
            node.value
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        ]
        docstrings = {line for text in texts for line in range(text.lineno, (text.end_lineno or text.lineno) + 1)}
        code = {
            line
            for token in self.tokens
            if token.type not in NOT_CODE
            for line in range(token.start[0], token.end[0] + 1)
        }
        return len(code - docstrings)

    def functions(self) -> Iterator[Function]:
        return (node for node in ast.walk(self.tree) if isinstance(node, Function))

    def imported(self, known: set[str]) -> set[str]:
        """Modules of ours that it imports, late imports included, those for the type checker alone left out."""
        package = self.name if self.is_package else self.name.rpartition(".")[0]
        return set(_imported(self.tree, package, known)) & known - {self.name}


def _imported(node: ast.AST, package: str, known: set[str]) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING")):
                continue
            case ast.Import():
                yield from (alias.name for alias in child.names)
            case ast.ImportFrom():
                start = resolve_name("." * child.level + (child.module or ""), package)
                whole = (f"{start}.{alias.name}" for alias in child.names)
                yield from (name if name in known else start for name in whole)
            case _:
                yield from _imported(child, package, known)


def read_modules(root: Path) -> list[Module]:
    source = root / "src"
    return [
        Module(
            name=".".join(path.relative_to(source).with_suffix("").parts).removesuffix(".__init__"),
            path=path.relative_to(source),
            source=path.read_text(encoding="utf-8"),
        )
        for path in sorted(source.rglob("*.py"))
    ]


def circles(imports: dict[str, set[str]]) -> list[str]:
    """Groups of modules that all import each other, directly or not."""
    reached = {name: _reached(name, imports) for name in imports}
    in_circle = [name for name in imports if name in reached[name]]
    groups = {tuple(sorted(other for other in reached[name] if name in reached[other])) for name in in_circle}
    return sorted(" <-> ".join(group) for group in groups)


def _reached(start: str, imports: dict[str, set[str]]) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        new = imports[waiting.pop()] - found
        found |= new
        waiting += new
    return found


def is_gerund(word: str) -> bool:
    return "_" not in word and word.endswith("ing") and word not in GERUND_NOUNS


def is_participle(word: str) -> bool:
    regular = word.endswith("ed") and len(word) > 3 and word not in NOT_PARTICIPLES
    return "_" not in word and (regular or word in IRREGULAR_PARTICIPLES)


def is_property(function: Function) -> bool:
    return any("property" in ast.unparse(decorator) for decorator in function.decorator_list)


def is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    return any(kind is None or ast.unparse(kind) in ("Exception", "BaseException") for kind in kinds)


def app_layers(root: Path) -> int | None:
    """Layers of the import contract among the folders of `app`; None where there is no such contract."""
    settings = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    for contract in settings["tool"]["importlinter"]["contracts"]:
        names = " ".join(contract.get("layers", ()))
        if contract.get("containers") == ["pinfold.app"] or names.startswith("pinfold.app."):
            return len(contract["layers"])
    return None


def measure(root: Path) -> list[Figure]:
    modules = read_modules(root)
    known = {module.name for module in modules}
    imports = {module.name: module.imported(known) for module in modules}
    importers = Counter(target for targets in imports.values() for target in targets)
    plain = [module for module in modules if not module.is_package]
    functions = [(module, function) for module in modules for function in module.functions()]
    folders = Counter(str(module.path.parent) for module in modules)

    def count(what: str, goal: int, places: list[str]) -> Figure:
        return Figure(what=what, value=len(places), goal=goal, places=places)

    def largest(what: str, goal: int, sizes: list[tuple[int, str]]) -> Figure:
        over = [f"{name} ({size})" for size, name in sorted(sizes, reverse=True) if size > goal]
        return Figure(what=what, value=max(sizes)[0], goal=goal, places=over)

    def nodes(test: Callable[[ast.AST], bool]) -> list[str]:
        found = {
            f"{module.path}:{node.lineno}"
            for module in modules
            for node in ast.walk(module.tree)
            if isinstance(node, ast.expr | ast.excepthandler) and test(node)
        }
        return sorted(found)

    layers = app_layers(root)
    return [
        Figure(what="code lines", value=sum(module.code_lines for module in modules), goal=60_000, places=[]),
        Figure(what="files", value=len(modules), goal=480, places=[]),
        count(
            f"modules with one importer, under {LONE_LINES} lines",
            25,
            [module.name for module in plain if importers[module.name] == 1 and module.lines < LONE_LINES],
        ),
        count(f"modules of {TINY_LINES} lines or fewer", 50, [one.name for one in plain if one.lines <= TINY_LINES]),
        largest("longest file", 450, [(module.lines, module.name) for module in modules]),
        largest(
            "longest function",
            60,
            [
                ((function.end_lineno or 0) - function.lineno + 1, f"{module.name}.{function.name}")
                for module, function in functions
            ],
        ),
        count(
            "modules named by a gerund or participle",
            0,
            [module.name for module in plain if is_gerund(module.word) or is_participle(module.word)],
        ),
        count(
            "functions named by a participle",
            40,
            [
                f"{module.name}.{function.name}"
                for module, function in functions
                if is_participle(function.name.strip("_")) and not is_property(function)
            ],
        ),
        largest("most files in one folder", 30, [(size, name) for name, size in folders.items()]),
        count("import circles", 0, circles(imports)),
        Figure(
            what="layers in app",
            value=layers,
            goal=9,
            places=["no contract in pyproject.toml"] if layers is None else [],
        ),
        count("lines with Any", 400, nodes(lambda node: isinstance(node, ast.Name) and node.id == "Any")),
        count("broad excepts", 65, nodes(lambda node: isinstance(node, ast.ExceptHandler) and is_broad(node))),
        count(
            "lint ignores",
            125,
            [
                f"{module.path}:{token.start[0]}"
                for module in modules
                for token in module.tokens
                if token.type == tokenize.COMMENT and IGNORE.search(token.string)
            ],
        ),
    ]


def measure_commit(commit: str) -> list[Figure]:
    packed = subprocess.run(
        ["git", "archive", "--format=tar", commit, "src/pinfold", "pyproject.toml"],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
    ).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
        return measure(Path(folder))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--before", metavar="COMMIT", help="Add the figures of this commit.")
    commit: str | None = parser.parse_args().before
    figures = measure(ROOT)
    before = {figure.what: figure.shown for figure in measure_commit(commit)} if commit else {}
    print(f"{'':46}{'before':>8}{'now':>8}{'goal':>8}" if commit else f"{'':46}{'now':>8}{'goal':>8}")
    for figure in figures:
        earlier = f"{before[figure.what]:>8}" if commit else ""
        print(f"{figure.what:46}{earlier}{figure.shown:>8}{figure.goal:>8,}  {'ok' if figure.holds else 'missed'}")
        if not figure.holds:
            print("".join(f"    {place}\n" for place in figure.places[:SHOWN]), end="")
    return int(not all(figure.holds for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
