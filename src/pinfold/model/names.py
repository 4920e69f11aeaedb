"""From a model's name to the model."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import TypeAlias

from pinfold.model.errors import UnknownModel
from pinfold.model.replay import ReplayModel
from pinfold.model.scripted import ScriptedModel

Model: TypeAlias = ScriptedModel | ReplayModel
_SCHEMES = {"scripted": ScriptedModel.from_file, "replay": ReplayModel.from_file}


def full_name(name: str) -> str:
    """The same name from every folder: a relative file becomes an absolute one."""
    scheme, colon, rest = name.partition(":")
    return f"{scheme}:{Path(rest).absolute()}" if colon and rest and scheme in _SCHEMES else name


def model_named(name: str, served: Sequence[str] = ()) -> Model:
    """The model called `name`; `served` are the request ids it gave out earlier in the session."""
    scheme, colon, rest = name.partition(":")
    if not name:
        raise UnknownModel("no model is configured; name one with --model, e.g. --model scripted:FILE")
    if colon and rest and scheme in _SCHEMES:
        return _SCHEMES[scheme](Path(rest), served)
    near = difflib.get_close_matches(scheme, _SCHEMES, n=1)
    hint = (
        f"did you mean {near[0]}:FILE?"
        if near
        else "known are " + " and ".join(f"{s}:FILE" for s in _SCHEMES)
    )
    raise UnknownModel(f"no model is called {name!r}; {hint}")
