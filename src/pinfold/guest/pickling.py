"""A pickler for one graph that is written in parts: it says what each part shares with the others.

Variables are referred to by name from outside their part, large memory leaves the stream, and the session's own
functions and classes go by value. Finds out; what follows from it is decided in `saving`.
"""

from __future__ import annotations

import sys
from _pickle import PickleBuffer
from _pickle import Pickler as _Pickler
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

from . import arrays, reducing
from .reasons import lost_kind
from .reducing import Filling, Names, Unsaved

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from typing import Any

    from .reducing import Reducer

PROTOCOL = 5
APART_BYTES = 1 << 20
"""Memory of at least this size is kept outside the stream, so that it is stored once and only when it changes."""
NAMESPACE = ""
"""How a stream refers to the session's variables as a whole."""

ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)))
"""Values that are what they are wherever they are: nobody can tell two equal ones apart, or change them."""
CONTAINERS = frozenset((list, dict, set, bytearray))
"""Pickled without asking us how."""
VALUES = frozenset(
    (
        "datetime.date",
        "datetime.datetime",
        "datetime.time",
        "datetime.timedelta",
        "datetime.timezone",
        "decimal.Decimal",
        "fractions.Fraction",
        "numpy.dtype",
        "numpy.generic",
        "pandas.Index",
        "pandas._libs.tslibs.timestamps._Timestamp",
        "pathlib.PurePath",
        "pathlib._local.PurePath",
        "pyarrow.lib._Weakrefable",
        "re.Pattern",
        "uuid.UUID",
        "zoneinfo.ZoneInfo",
        "enum.Enum",
    )
)
"""Types without identity worth keeping, by full name, with their subclasses."""
LIVING = (
    ("os", "environ"),
    ("os", "environb"),
    ("sys", "modules"),
    ("sys", "path"),
    ("sys", "argv"),
    ("sys", "stdin"),
    ("sys", "stdout"),
    ("sys", "stderr"),
    ("sys", "__stdin__"),
    ("sys", "__stdout__"),
    ("sys", "__stderr__"),
    ("builtins", "__dict__"),
    ("matplotlib", "rcParams"),
)
"""What every process has one of: a variable that holds it holds the new process's own."""

REDUCERS: dict[type, Reducer] = {
    BuiltinFunctionType: lambda _pickler, _value: NotImplemented,
    CellType: reducing.cell,
    CodeType: reducing.code,
    Filling: reducing.filling,
    FunctionType: reducing.function,
    GetSetDescriptorType: reducing.descriptor,
    MappingProxyType: reducing.mapping_proxy,
    MemberDescriptorType: reducing.descriptor,
    MethodType: reducing.method,
    Names: reducing.names,
    classmethod: reducing.wrapped,
    memoryview: reducing.memory_view,
    property: reducing.property_,
    staticmethod: reducing.wrapped,
    type({}.keys()): reducing.names_view,
    type({}.values()): reducing.names_view,
    type({}.items()): reducing.names_view,
}
BY_NAME: dict[str, Reducer] = {
    "_struct.Struct": reducing.structure,
    "builtins.BaseException": reducing.exception,
    "builtins.module": reducing.module,
    "collections.odict_items": reducing.names_view,
    "collections.odict_keys": reducing.names_view,
    "collections.odict_values": reducing.names_view,
    "functools._lru_cache_wrapper": reducing.cached,
    "functools.cached_property": reducing.cached_property,
    "logging.Logger": reducing.logger,
    "numpy.ndarray": arrays.array,
    "pandas.core.arrays.base.ExtensionArray": arrays.pandas_value,
    "pandas.core.base.PandasObject": arrays.pandas_value,
    "pyarrow.lib.Array": arrays.arrow_value,
    "pyarrow.lib.ChunkedArray": arrays.arrow_value,
    "pyarrow.lib.RecordBatch": arrays.arrow_value,
    "pyarrow.lib.Table": arrays.arrow_value,
    "re.Match": reducing.match,
    "typing.NewType": reducing.new_type,
    "typing.ParamSpec": reducing.type_variable,
    "typing.TypeVar": reducing.type_variable,
    "weakref.ReferenceType": reducing.reference,
    "weakref.WeakKeyDictionary": reducing.weak_mapping,
    "weakref.WeakSet": reducing.weak_set,
    "weakref.WeakValueDictionary": reducing.weak_mapping,
}
"""For the type of that full name and its subclasses; looked up once a type."""

_name_of = type.__dict__["__name__"].__get__
_module_of = type.__dict__["__module__"].__get__


class TooLarge(Exception):
    """More bytes than a variable may have."""


class Graph:
    """What the parts of one saving have in common."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self.namespace = namespace
        self.variables: dict[int, str] = {}
        """The name of the variable that is this object."""
        self.living: dict[int, tuple[str, str]] = {}
        self.memory = arrays.Memory()
        self._how: dict[type, tuple[Reducer | None, bool, dict[int, tuple[str, str]]]] = {}
        for module_name, name in LIVING:
            held = getattr(sys.modules.get(module_name), name, None)
            if held is not None:
                self.living[id(held)] = (module_name, name)

    def has_identity(self, value: object) -> bool:
        """Whether others refer to the variable that is this object, rather than hold its value themselves."""
        kind = type(value)
        if kind in CONTAINERS:
            return value is not self.namespace and id(value) not in self.living
        if kind in ATOMS or kind in (tuple, frozenset, BuiltinFunctionType) or id(value) in self.living:
            return False
        if kind is FunctionType or issubclass(kind, type):
            return not reducing.is_named(value, value.__module__, value.__qualname__)  # pyright: ignore[reportAttributeAccessIssue]
        _, has_identity, kept = self.how(kind)
        return has_identity and id(value) not in kept

    def how(self, kind: type) -> tuple[Reducer | None, bool, dict[int, tuple[str, str]]]:
        """The reducer, whether a value has an identity, and the values that a module of the library keeps."""
        known = self._how.get(kind)
        if known is None:
            known = self._how[kind] = _how(kind)
        return known


def _how(kind: type) -> tuple[Reducer | None, bool, dict[int, tuple[str, str]]]:
    reducer = REDUCERS.get(kind)
    if reducer is not None:
        return reducer, True, {}
    if issubclass(kind, type):
        return reducing.class_, True, {}
    paths = [f"{_module_of(base)}.{_name_of(base)}" for base in type.mro(kind)]
    reducer = next((BY_NAME[path] for path in paths if path in BY_NAME), None)
    reason = lost_kind(kind)
    if reason is not None and reducer is None:
        reducer = _refuse(reason)
    return reducer, VALUES.isdisjoint(paths), _kept_by_library(kind)


def _refuse(reason: str) -> Reducer:
    def refuse(_pickler: Pickler, _value: object) -> object:
        raise Unsaved(reason)

    return refuse


def _kept_by_library(kind: type) -> dict[int, tuple[str, str]]:
    """Values of a class that its own module keeps under a name: `dataclasses.MISSING` is one wherever it is.

    Only those that nobody changes: of the standard library's, and of others those that hold nothing.
    """
    module_name = _module_of(kind)
    module = sys.modules.get(module_name) if type(module_name) is str else None
    if module is None or module_name == "__main__" or not reducing.is_imported(module):
        return {}
    is_standard = module_name.partition(".")[0] in sys.stdlib_module_names
    return {
        id(held): (module_name, name)
        for name, held in vars(module).items()
        if type(held) is kind and (is_standard or _is_empty(held))
    }


def _is_empty(value: object) -> bool:
    kind = type(value)
    return kind.__itemsize__ == 0 and kind.__basicsize__ <= 32 and not getattr(value, "__dict__", None)


class Stream:
    """Where the pickler writes: pieces, up to a size."""

    __slots__ = ("apart", "limit", "parts", "size", "texts")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.parts: list[bytes] = []
        self.apart: list[PickleBuffer] = []
        """Memory the stream asks for in this order."""
        self.texts: list[bytes] = []
        """Large bytes, which it asks for by number."""

    def write(self, data: Any) -> None:
        self._count(len(data))
        self.parts.append(data if type(data) is bytes else bytes(data))

    def put_apart(self, buffer: PickleBuffer) -> bool:
        """Whether it stays in the stream, as the pickler wants to hear it."""
        size = buffer.raw().nbytes
        if size < APART_BYTES:
            return True
        self._count(size)
        self.apart.append(buffer)
        return False

    def put_text(self, data: bytes) -> int:
        self._count(len(data))
        self.texts.append(data)
        return len(self.texts) - 1

    def _count(self, size: int) -> None:
        self.size += size
        if self.size > self.limit:
            raise TooLarge


class Pickler(_Pickler):
    """One part: the variables `own`, by value, with everything they hold."""

    def __init__(self, stream: Stream, graph: Graph, own: dict[str, object]) -> None:
        super().__init__(stream, PROTOCOL, buffer_callback=stream.put_apart)
        self.graph = graph
        self.uses: set[str] = set()
        """Variables outside it that it refers to."""
        self.seen: dict[int, object] = {}
        """Everything with an identity, kept alive so that no other object gets its number."""
        self.roots: dict[int, object] = {}
        """Whose memory its arrays use."""
        self.weak: list[object] = []
        """What it refers to without keeping it."""
        self.notes: list[str] = []
        self._stream = stream
        self._own = set(map(id, own.values()))
        self._texts: dict[int, tuple[int, bytes]] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = type(obj)
        if kind in ATOMS:
            if kind is bytes and len(obj) >= APART_BYTES:
                return self._text(obj)
            return None
        key = id(obj)
        graph = self.graph
        if key in graph.variables and key not in self._own:
            name = graph.variables[key]
            self.uses.add(name)
            return name
        if key in graph.living:
            return graph.living[key]
        if kind in CONTAINERS:
            if obj is graph.namespace:
                return NAMESPACE
            self.seen[key] = obj
        return None

    def reducer_override(self, obj: Any) -> Any:
        reducer, has_identity, kept = self.graph.how(type(obj))
        if kept and id(obj) in kept:
            return reducing.again.attribute, kept[id(obj)]
        if reducer is None:
            if has_identity:
                self.seen[id(obj)] = obj
            return NotImplemented
        reduced = reducer(self, obj)
        if reduced is not NotImplemented and has_identity:
            self.seen[id(obj)] = obj
        return reduced

    def _text(self, data: bytes) -> int:
        known = self._texts.get(id(data))
        if known is None:
            known = self._texts[id(data)] = (self._stream.put_text(data), data)
        return known[0]
