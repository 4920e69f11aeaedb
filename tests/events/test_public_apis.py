"""Every room has one front door: complete, sorted, importable."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType

import pytest

pytestmark = [pytest.mark.unit, pytest.mark.installed]

ROOMS = ["events", "text", "log", "model", "tools", "policy", "sandbox", "engine", "hooks", "testing"]


@pytest.mark.parametrize("room", ROOMS)
def test_a_front_door_is_sorted_and_everything_in_it_is_there(room: str) -> None:
    module = importlib.import_module(f"pinfold.{room}")
    names = list(module.__all__)
    # As ruff sorts: CONSTANTS, then Classes, then functions.
    assert names == sorted(names, key=lambda name: (not name.isupper(), not name[0].isupper(), name))
    assert len(names) == len(set(names))
    assert [name for name in names if not hasattr(module, name)] == []


@pytest.mark.parametrize("room", [room for room in ROOMS if room not in ("sandbox", "hooks", "testing")])
def test_what_a_room_imports_into_its_front_door_is_in_all(room: str) -> None:
    module = importlib.import_module(f"pinfold.{room}")
    public = {
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    }
    assert public == set(module.__all__)


def test_the_package_offers_what_it_promises() -> None:
    import pinfold

    assert [name for name in pinfold.__all__ if not hasattr(pinfold, name)] == []


def test_every_error_that_agent_says_it_raises_can_be_caught_by_name() -> None:
    import pinfold

    source = inspect.getsource(importlib.import_module(pinfold.Agent.__module__))
    raised = {*re.findall(r"\b(?:raise|Raises) (\w+(?:Error|Refused|Session|Busy|Gone))\b", source)}
    assert raised, "the source names what it raises"
    assert raised <= {*pinfold.__all__}
    assert all(issubclass(getattr(pinfold, name), pinfold.PinfoldError) for name in raised)
