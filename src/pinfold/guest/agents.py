"""Sub-agents for code in a cell: `agents.run(...)`, `agents.gather([...])`. Each works on a fork of this process.

What a sub-agent keeps is written to files inside the sandbox as soon as it is kept, and read back by the cell that
waits: the host never reads it, and it is there when the sub-agent is not.
"""

from __future__ import annotations

import builtins
import os
import sys
from contextlib import suppress
from types import ModuleType

from .calls import current

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

START = "agents.start"
"""A call that the host answers itself; no tool has this name."""
VALUE, FAULT = ".value", ".fault"
__all__ = ["gather", "run"]

_folder = ""
"""Where this process writes its results; empty if it is no sub-agent."""
_kept: dict[str, None] = {}


class AgentResult(dict[str, "Any"]):
    """What a sub-agent has left: status, answer, variables, files, conflicts, usage. Its keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(f"a result of a sub-agent has {', '.join(self)}, but no {name!r}") from None

    def __repr__(self) -> str:
        usage = self.get("usage", {})
        lines = [f"{self.get('name')}: {self.get('status')} ({usage.get('tokens', 0):,} tokens)"]
        if self.get("why"):
            lines.append(f"why: {self['why']}")
        if self.get("variables"):
            named = (f"{name} ({type(value).__name__})" for name, value in self["variables"].items())
            lines.append(f"variables: {', '.join(named)}")
        lines += [f"{name} was not kept: {reason}" for name, reason in self.get("missing", {}).items()]
        if self.get("files"):
            lines.append(f"files: {', '.join(self['files'])}")
        if self.get("conflicts"):
            lines.append(f"conflicts, left as they are here: {', '.join(self['conflicts'])}")
        return "\n".join([*lines, f"answer: {self.get('answer') or '(none)'}"])


def run(brief: str, **options: object) -> AgentResult:
    """Have a sub-agent do what `brief` says, on a fork of this session, and wait for it.

    give: names of the variables it sees; all unless given. keep: names of variables it is to bring back.
    budget: {"tokens", "cost", "steps", "seconds"}, or a number of tokens. model, agent: names. name: what it is called.
    """
    return gather([{"brief": brief, **options}])[0]


def gather(tasks: Iterable[Any]) -> list[AgentResult]:
    """Several at once: each a brief, or a dict of what `run` takes. The results are in the same order."""
    asked = [{"brief": task} if isinstance(task, str) else dict(task) for task in tasks]
    results = current().call(START, {"tasks": asked})
    return [AgentResult(_with_variables(result)) for result in results]


def _with_variables(result: dict[str, Any]) -> dict[str, Any]:
    from shutil import rmtree

    folder, wanted = result.pop("folder"), result.pop("keep")
    values, missing = dict[str, object](), dict[str, str]()
    for name in sorted({*wanted, *_names_in(folder)}):
        try:
            values[name] = _read(f"{folder}/{name}")
        except FileNotFoundError:
            missing[name] = "it was never set"
        except Exception as error:  # unpickling runs code of the value's classes
            missing[name] = f"{type(error).__name__}: {error}"
    rmtree(folder, ignore_errors=True)
    usage = result.pop("usage")
    return {**result, "variables": values, "missing": missing, "usage": usage}


def _names_in(folder: str) -> set[str]:
    with suppress(OSError):
        return {name.removesuffix(VALUE).removesuffix(FAULT) for name in os.listdir(folder) if not name.startswith(".")}
    return set()


def _read(path: str) -> object:
    import pickle

    try:
        with open(path + VALUE, "rb") as file:
            return pickle.load(file)  # noqa: S301 - inside the sandbox, written by a fork of this process
    except FileNotFoundError:
        with open(path + FAULT, encoding="utf-8") as file:
            raise ValueError(file.read()) from None


def keep(*names: str) -> None:
    """Bring these variables back to the agent that started this one, as they are now and after each cell to come."""
    _kept.update(dict.fromkeys(names))
    store()


def begin_child(folder: str, give: list[str] | None, wanted: list[str]) -> None:
    """Make this process a sub-agent's. Raises NameError if `give` names a variable that does not exist."""
    global _folder
    namespace = sys.modules["__main__"].__dict__
    if give is not None:
        for name in give:
            if name not in namespace:
                raise NameError(f"give names {name!r}, and there is no such variable")
        for name, value in [*namespace.items()]:
            if name not in give and not name.startswith("_") and not isinstance(value, ModuleType):
                del namespace[name]
    os.makedirs(folder, mode=0o700)
    _folder = folder
    _kept.update(dict.fromkeys(wanted))
    builtins.__dict__.pop("agents", None)
    builtins.__dict__["keep"] = keep


def store() -> None:
    """Write the kept variables that exist. Does nothing outside a sub-agent."""
    namespace = sys.modules["__main__"].__dict__
    for name in [*_kept] if _folder else ():
        if name in namespace:
            _write(f"{_folder}/{name}", namespace[name])


def _write(path: str, value: object) -> None:
    import pickle

    partial = f"{os.path.dirname(path)}/.partial"
    try:
        with open(partial, "wb") as file:
            pickle.dump(value, file, 5)
        os.replace(partial, path + VALUE)
        with suppress(FileNotFoundError):
            os.unlink(path + FAULT)
    except Exception as error:  # pickling runs code of the value's classes, or the disk is full
        with suppress(OSError), open(path + FAULT, "w", encoding="utf-8") as file:
            file.write(f"it cannot be carried over: {type(error).__name__}: {error}")


def install() -> None:
    """Make this module available to cells as `agents`."""
    builtins.__dict__["agents"] = sys.modules[__name__]
