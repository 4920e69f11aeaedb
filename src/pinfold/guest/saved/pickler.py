"""A pickler for one object graph that is written in parts. It records what each part shares with the others.

Other parts refer to a variable by its name, large memory is kept outside the stream, and the session's own functions
and classes are pickled by value. This module only records; `serialization` decides what follows.
"""

from __future__ import annotations

import sys
import types
from _pickle import PickleBuffer
from _pickle import Pickler as _Pickler
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from . import arrays, constructors, reducers
from .introspection import (
    OPEN_FILE,
    SESSION,
    Unsaved,
    dict_of,
    find_in_library,
    kind_of,
    module_of,
    paths_of,
    why_unsavable,
)
from .reducers import ClassMethods, ModuleGlobals

if TYPE_CHECKING:
    from .reducers import Reducer

PROTOCOL = 5
APART_BYTES = 1 << 20
"""Memory of at least this size is kept outside the stream, so that it is stored once and only when it changes."""
NAMESPACE = ""
"""How a stream refers to the session's namespace itself."""

ATOMS = frozenset((type(None), bool, int, float, complex, str, bytes, range, slice, type(...), type(NotImplemented)))
"""Immutable types whose identity does not matter: equal values are interchangeable."""
CONTAINERS = frozenset((list, dict, set, bytearray))
"""Types that pickle handles without calling `reducer_override`."""
_VALUES = """
datetime.date datetime.datetime datetime.time datetime.timedelta datetime.timezone decimal.Decimal
fractions.Fraction numpy.dtype numpy.generic pandas.Index pandas.api.extensions.ExtensionDtype
pandas.core.dtypes.base.ExtensionDtype pandas._libs.tslibs.timedeltas._Timedelta
pandas._libs.tslibs.timestamps._Timestamp pandas.core.indexes.base.Index pathlib.PurePath pathlib._local.PurePath
pyarrow.lib._Weakrefable re.Pattern uuid.UUID zoneinfo.ZoneInfo enum.Enum
"""
VALUES = frozenset(_VALUES.split())
"""More types whose identity does not matter, by full name, with their subclasses."""
LIVING = """
os:environ os:environb sys:modules sys:path sys:argv sys:stdin sys:stdout sys:stderr sys:__stdin__ sys:__stdout__
sys:__stderr__ builtins:__dict__ dataclasses:_EMPTY_METADATA matplotlib:rcParams numpy.random.mtrand:_rand
"""
"""Objects of which every process has its own: a restored variable holds that of the new process."""

REDUCERS: dict[type, Reducer] = {
    types.BuiltinFunctionType: lambda _pickler, _value: NotImplemented,
    types.CellType: reducers.cell,
    types.CodeType: reducers.code,
    ClassMethods: reducers.class_methods,
    types.FunctionType: reducers.function,
    types.GetSetDescriptorType: reducers.descriptor,
    types.MappingProxyType: reducers.mapping_proxy,
    types.MemberDescriptorType: reducers.descriptor,
    types.MethodType: reducers.method,
    ModuleGlobals: reducers.names,
    classmethod: reducers.wrapped_method,
    memoryview: reducers.memory_view,
    property: reducers.property_,
    staticmethod: reducers.wrapped_method,
}
BY_NAME: dict[str, Reducer] = {
    "_struct.Struct": reducers.structure,
    "builtins.BaseException": reducers.exception,
    "builtins.module": reducers.module,
    "builtins.set": reducers.collection,
    "collections.OrderedDict": reducers.collection,
    "collections.defaultdict": reducers.collection,
    "collections.deque": reducers.collection,
    "builtins.dict_items": reducers.names_view,
    "builtins.dict_keys": reducers.names_view,
    "builtins.dict_values": reducers.names_view,
    "builtins.odict_items": reducers.names_view,
    "builtins.odict_keys": reducers.names_view,
    "builtins.odict_values": reducers.names_view,
    "functools._lru_cache_wrapper": reducers.cached_function,
    "functools.cached_property": reducers.cached_property,
    "logging.Logger": reducers.logger,
    "numpy.dtype": arrays.dtype,
    "numpy.ndarray": arrays.array,
    "pandas.api.extensions.ExtensionArray": arrays.pandas_value,
    "pandas.core.arrays.base.ExtensionArray": arrays.pandas_value,
    "pandas.core.base.PandasObject": arrays.pandas_value,
    "pyarrow.lib.Array": arrays.arrow_value,
    "pyarrow.lib.ChunkedArray": arrays.arrow_value,
    "pyarrow.lib.RecordBatch": arrays.arrow_value,
    "pyarrow.lib.Table": arrays.arrow_value,
    "re.Match": reducers.match,
    "typing.NewType": reducers.new_type,
    "typing.TypeAliasType": reducers.type_alias,
    "typing.ParamSpec": reducers.type_variable,
    "typing.TypeVar": reducers.type_variable,
    "weakref.ReferenceType": reducers.reference,
    "weakref.WeakKeyDictionary": reducers.weak_mapping,
    "weakref.WeakSet": reducers.weak_set,
    "weakref.WeakValueDictionary": reducers.weak_mapping,
}
"""Reducers for a type and its subclasses, by the type's full name; looked up once per type."""

OWN_WAYS = ("__getstate__", "__setstate__", "__reduce__", "__reduce_ex__", "__getnewargs__", "__getnewargs_ex__")
HOOKS = ("__getattr__", "__getattribute__")


class TooLarge(Exception):
    """The variable has more bytes than allowed."""


class TypeTraits(NamedTuple):
    """What the pickler must know about a type before it reduces a value of it."""

    reducer: Reducer | None
    has_identity: bool = True
    kept: Mapping[int, tuple[str, str]] = {}
    """Values that the type's module keeps under a name."""
    may_be_named: bool = False
    """True if its values may be functions of a library, or other callables with a name."""
    is_sessions: bool = False
    """True if the session defined the type."""
    has_own_ways: bool = False
    """True if the session also defined how it is pickled."""
    has_hooks: bool = False
    """True if reading an attribute of a value runs the session's code."""
    plain: type | None = None
    """The built-in base class that holds the value."""


class Graph:
    """What the parts of one save have in common."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self.namespace = namespace
        self.known: dict[int, str | tuple[str, str]] = {id(namespace): NAMESPACE}
        """Objects to refer to, by id: a variable by its name, an object of every process by module and name."""
        self.memory = arrays.Memory()
        self.ignored: set[int] = set()
        """Objects that libraries share among all their values, so that sharing them means nothing."""
        self.whole: set[int] = set()
        """Attribute dicts of objects that are also referenced elsewhere: both must be the same dict when restored."""
        self._how: dict[type, TypeTraits] = {}
        for module_name, _, name in (path.partition(":") for path in LIVING.split()):
            held = getattr(sys.modules.get(module_name), name, None)
            if held is not None:
                self.known[id(held)] = (module_name, name)

    def add(self, name: str, value: object) -> None:
        """Add a variable. Others refer to it by name if its identity matters."""
        kind = kind_of(value)
        if id(value) in self.known or kind in ATOMS or kind in (tuple, frozenset, types.BuiltinFunctionType):
            return
        how = self.how(kind)
        if kind in CONTAINERS or (how.has_identity and id(value) not in how.kept):
            self.known[id(value)] = name

    def how(self, kind: type) -> TypeTraits:
        known = self._how.get(kind)
        if known is None:
            known = self._how[kind] = _how(kind)
        return known


def _how(kind: Any) -> TypeTraits:
    if kind in REDUCERS:
        return TypeTraits(REDUCERS[kind], has_identity=kind not in (types.CodeType, ClassMethods, ModuleGlobals))
    if issubclass(kind, type):
        return TypeTraits(reducers.class_)
    paths = paths_of(kind)
    reducer = next((BY_NAME[path] for path in paths if path in BY_NAME), None)
    reason = why_unsavable(kind)
    return TypeTraits(
        _refuse(reason) if reason is not None and reducer is None else reducer,
        has_identity=kind not in ATOMS and VALUES.isdisjoint(paths),
        may_be_named="__call__" in dir(kind) and module_of(kind) != SESSION,
        kept=find_in_library(kind),
        is_sessions=module_of(kind) == SESSION and "enum.Enum" not in paths,
        has_own_ways=has_own_ways(kind),
        has_hooks=_defines(kind, HOOKS),
        plain=reducers.plain_of(kind),
    )


def has_own_ways(kind: type) -> bool:
    """Return True if the session defines how values of this class are pickled."""
    return _defines(kind, OWN_WAYS)


def _defines(kind: type, names: tuple[str, ...]) -> bool:
    """Return True if the class, or a base class that the session defined, defines one of these names."""
    return any(name in dict_of(base) for base in type.mro(kind) if module_of(base) == SESSION for name in names)


def _refuse(reason: str) -> Reducer:
    def refuse(_pickler: Pickler, value: Any) -> object:
        if reason is OPEN_FILE and value.closed:
            raise Unsaved("a file that was closed has nothing left to save")
        raise Unsaved(reason)

    return refuse


class Stream:
    """The pickler's output, in pieces, up to a size limit."""

    __slots__ = ("apart", "limit", "parts", "size", "texts")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.size = 0
        self.parts: list[bytes] = []
        self.apart: list[PickleBuffer] = []
        """Memory kept outside the stream, in the order in which the stream reads it."""
        self.texts: list[bytes] = []
        """Large bytes objects, to which the stream refers by index."""

    def write(self, data: Any) -> None:
        self._count(len(data))
        # Other buffers than bytes may be freed before the pickler is done, so copy them.
        self.parts.append(data if type(data) is bytes else bytes(data))

    def length(self) -> int:
        """Return the length of the stream without the memory kept apart."""
        return sum(map(len, self.parts))

    def put_apart(self, buffer: PickleBuffer) -> bool:
        """Take a buffer out of the stream if it is large. True if it stays, as pickle's callback must return."""
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


class Found:
    """What the pickler found in one part. Objects are keyed by their id."""

    def __init__(self) -> None:
        self.uses: set[str] = set()
        """Variables outside the part that it refers to."""
        self.seen: dict[int, object] = {}
        """Every object whose identity matters, kept alive so that its id is not reused."""
        self.memory: dict[int, set[int | str]] = {}
        """By the owner of the memory: how it is saved, with one item for each separate copy."""
        self.states: dict[int, object] = {}
        """Attribute dicts of objects of the session's classes."""
        self.twice: set[int] = set()
        """Dicts that were met more than once."""
        self.framed: set[int] = set()
        """Arrays that already belong to a frame."""
        self.notes: list[str] = []
        """What the user should know when the part is restored."""
        self.may_differ = False
        """True if only reading it back can show that it is restored as it was."""


class Pickler(_Pickler):
    """Pickles one part: the variables `own`, by value, with everything they hold."""

    def __init__(self, stream: Stream, graph: Graph, own: dict[str, object]) -> None:
        super().__init__(stream, PROTOCOL, buffer_callback=stream.put_apart)
        self.graph = graph
        self.found = Found()
        self.seen = self.found.seen
        self._stream = stream
        self._own = {id(value) for name, value in own.items() if graph.known.get(id(value)) == name}
        self._texts: dict[int, tuple[int, bytes]] = {}

    def persistent_id(self, obj: Any) -> Any:
        kind = kind_of(obj)
        if kind in ATOMS:
            if kind is bytes and len(obj) >= APART_BYTES:
                return self._text(obj)
            return None
        key = id(obj)
        graph = self.graph
        if key in graph.known and key not in self._own and key not in graph.memory.frames:
            pid = graph.known[key]
            if type(pid) is str and pid != NAMESPACE:
                self.found.uses.add(pid)
            return pid
        if kind in CONTAINERS:
            if kind is dict and key in self.seen:
                self.found.twice.add(key)
            self.seen[key] = obj
        return None

    def reducer_override(self, obj: object) -> Any:
        kind = kind_of(obj)
        how = self.graph.how(kind)
        if how.kept and id(obj) in how.kept:
            return constructors.attribute, how.kept[id(obj)]
        if how.reducer is not None:
            reduced = how.reducer(self, obj)
            if how.has_identity and reduced is not NotImplemented and reduced[0] is not constructors.attribute:
                self.seen[id(obj)] = obj
            return reduced
        if how.has_identity and not (how.may_be_named and reducers.has_name(obj)):
            self.seen[id(obj)] = obj
        return self._sessions(obj, how) if how.is_sessions else NotImplemented

    def _sessions(self, obj: object, how: TypeTraits) -> Any:
        if how.has_own_ways:
            self.found.may_differ = True
            return NotImplemented
        with suppress(AttributeError):  # the object has only slots
            attributes = object.__getattribute__(obj, "__dict__")
            self.found.states[id(attributes)] = attributes
            if how.has_hooks or id(attributes) in self.graph.whole:
                return reducers.instance(obj, how.plain, attributes)
        return NotImplemented if how.plain is None else reducers.instance(obj, how.plain, None)

    def _text(self, data: bytes) -> int:
        known = self._texts.get(id(data))
        if known is None:
            known = self._texts[id(data)] = (self._stream.put_text(data), data)
        return known[0]
