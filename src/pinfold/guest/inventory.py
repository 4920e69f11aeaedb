"""What variables there are, told without running any code of the program's own."""

from __future__ import annotations

import sys
from types import ModuleType

MOST = 5_000
"""Variables listed; a session with more has made them in a loop."""
NAME_CHARS = 200
SIZED = (str, bytes, bytearray, list, tuple, dict, set, frozenset, range)
SHAPED_BY = {
    "cupy",
    "jax",
    "jaxlib",
    "numpy",
    "pandas",
    "polars",
    "pyarrow",
    "scipy",
    "tensorflow",
    "torch",
    "xarray",
}

# Descriptors of `type` itself: a metaclass of the program's cannot get between.
_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__


def inventory(namespace: dict[str, object]) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    for name, value in namespace.copy().items():
        if type(name) is str and not name.startswith("_"):
            found.append(_described(name, value))
            if len(found) == MOST:
                break
    return found


def _described(name: str, value: object) -> dict[str, object]:
    kind = type(value)
    shape: str | None = None
    size: int | None = None
    if kind in SIZED:
        shape = str(len(value))  # pyright: ignore[reportArgumentType]
    if kind in SIZED or kind in (int, float, complex, bool):
        size = sys.getsizeof(value)
    elif _is_library_array(kind):
        shape = _shape_text(getattr(value, "shape", None))
        nbytes = getattr(value, "nbytes", None)
        size = nbytes if type(nbytes) is int else None
    return {"name": name[:NAME_CHARS], "type": _name_of(kind)[:NAME_CHARS], "shape": shape, "size": size}


def _is_library_array(kind: type) -> bool:
    """Whether the type is a library's own: a class of the program's that only says so is not."""
    module_name = _module_of(kind)
    if type(module_name) is not str or module_name.partition(".")[0] not in SHAPED_BY:
        return False
    module = sys.modules.get(module_name)
    return type(module) is ModuleType and vars(module).get(_name_of(kind)) is kind


def _shape_text(shape: object) -> str | None:
    # A tuple or a library's subclass of it (torch.Size): copied, so that only plain tuples are walked.
    sides: tuple[object, ...] = tuple(shape) if isinstance(shape, tuple) else ()  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    if not isinstance(shape, tuple) or any(type(side) is not int for side in sides):
        return None
    return " x ".join(str(side) for side in sides) or "scalar"
