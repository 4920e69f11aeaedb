"""Kinds of value a session may hold: the cell that makes one, and what must be true of it in another process."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kind:
    name: str
    cell: str
    check: str = ""
    """Run in the restored session; what it asserts is what "restored" means."""
    lost: str = ""
    """Of variable `x`: a part of the reason that must be given."""
    note: str = ""
    """Of variable `x`: a part of what must be said of it though it is restored."""


PLAIN = (
    Kind("integer", "x = 10**40", "assert x == 10**40"),
    Kind("float", "x = [1.5, float('inf'), float('nan'), -0.0]", "assert str(x) == '[1.5, inf, nan, -0.0]'"),
    Kind("complex", "x = 1 + 2j", "assert x == 1 + 2j and type(x) is complex"),
    Kind("text", "x = 'é\\ud800\\0' * 3", "assert x == 'é\\ud800\\0' * 3"),
    Kind("bytes", "x = bytes(range(256))", "assert x == bytes(range(256)) and type(x) is bytes"),
    Kind(
        "large bytes",
        "x = b'ab' * 10**6\ny = [x, x]",
        "assert x == b'ab' * 10**6 and y[0] is y[1] and y[0] == x",
    ),
    Kind("bytearray", "x = bytearray(b'abc')", "x[0] = 65; assert x == b'Abc'"),
    Kind(
        "none and ellipsis",
        "x = [None, ..., NotImplemented, True]",
        "assert x == [None, ..., NotImplemented, True]",
    ),
    Kind(
        "range and slice",
        "x = (range(1, 9, 2), slice(1, None, 2))",
        "assert x == (range(1, 9, 2), slice(1, None, 2))",
    ),
    Kind(
        "tuple, set, frozenset",
        "x = ({1, 2}, frozenset('ab'), ())",
        "assert x == ({1, 2}, frozenset('ab'), ())",
    ),
    Kind("recursive list", "x = [1]; x.append(x)", "assert x[1] is x and len(x) == 2"),
    Kind("recursive dict", "x = {}; y = {'x': x}; x['y'] = y", "assert x['y'] is y and y['x'] is x"),
    Kind(
        "deep list",
        "x = []\nfor _ in range(500): x = [x]",
        "n = 0\nwhile x: x = x[0]; n += 1\nassert n == 500",
    ),
    Kind(
        "dict of a million",
        "x = {n: str(n) for n in range(10**6)}",
        "assert len(x) == 10**6 and x[77] == '77'",
    ),
    Kind(
        "deque",
        "import collections\nx = collections.deque([1, 2, 3], 3)",
        "x.append(4); assert list(x) == [2, 3, 4]",
    ),
    Kind(
        "defaultdict with a lambda",
        "import collections\nx = collections.defaultdict(lambda: start)\nstart = 7",
        "assert x['new'] == 7; start = 8; assert x['other'] == 8",
    ),
    Kind(
        "counter",
        "from collections import Counter\nx = Counter('aab')",
        "assert x.most_common(1) == [('a', 2)]",
    ),
    Kind(
        "ordered dict",
        "from collections import OrderedDict\nx = OrderedDict(b=1, a=2); x.move_to_end('b')\nkeys = x.keys()",
        "assert list(x) == ['a', 'b']; x['c'] = 1; assert list(keys) == ['a', 'b', 'c']",
    ),
    Kind(
        "chain map",
        "from collections import ChainMap\ntop, low = {}, {'a': 1}\nx = ChainMap(top, low)",
        "x['b'] = 2; assert top == {'b': 2} and x['a'] == 1",
    ),
    Kind(
        "views of a dict",
        "d = {1: 2}\nx = [d.keys(), d.items()]",
        "d[3] = 4; assert 3 in x[0] and (3, 4) in x[1]",
    ),
    Kind(
        "mapping proxy",
        "import types\nd = {1: 2}\nx = types.MappingProxyType(d)",
        "d[3] = 4; assert x[3] == 4",
    ),
    Kind("array", "import array\nx = array.array('d', [1, 2])", "x.append(3); assert list(x) == [1, 2, 3]"),
    Kind(
        "memory view",
        "b = bytearray(8)\nx = memoryview(b)\ny = memoryview(b).cast('i')\nz = memoryview(b'abcd')[1:3]",
        "x[0] = 5; assert b[0] == 5 and y[0] == 5 and y.format == 'i' and bytes(z) == b'bc'",
    ),
    Kind(
        "decimal and fraction",
        "from decimal import *\nfrom fractions import *\nx = [Decimal('1.10'), Fraction(1, 3)]",
        "assert str(x[0]) == '1.10' and x[1] * 3 == 1",
    ),
    Kind(
        "time with zone",
        "import datetime, zoneinfo\nx = datetime.datetime(2026, 3, 29, 2, tzinfo=zoneinfo.ZoneInfo('Europe/Berlin'))",
        "assert x.utcoffset() and str(x.tzinfo) == 'Europe/Berlin'; assert x.tzinfo is zoneinfo.ZoneInfo('Europe/Berlin')",
    ),
    Kind(
        "path",
        "import pathlib\nx = pathlib.Path('/a') / 'b'",
        "assert x == pathlib.Path('/a/b') and type(x) is type(pathlib.Path())",
    ),
    Kind("uuid", "import uuid\nx = uuid.UUID(int=5)", "assert x == uuid.UUID(int=5)"),
    Kind("regex", "import re\nx = re.compile('(a)(?P<n>b)', re.I)", "assert x.match('AB')['n'] == 'B'"),
    Kind(
        "match of a regex",
        "import re\nx = re.search('(b)(c)?', 'abd')",
        "assert x.span() == (1, 2) and x.groups() == ('b', None)",
    ),
    Kind(
        "random numbers",
        "import random\nx = random.Random(5); x.random()\ny = random.Random(5); y.random()",
        "z = random.Random(5); z.random(); assert x.random() == y.random() == z.random() and x is not y",
    ),
    Kind(
        "text in memory",
        "import io\nx = io.StringIO('abc'); x.read(1)\nb = io.BytesIO(b'abc')",
        "assert x.read() == 'bc' and b.read() == b'abc'",
    ),
    Kind(
        "iterators",
        "l = [1, 2, 3]\nx = iter(l); next(x)\nz = zip(x, 'ab')\nc = enumerate('ab'); next(c)",
        "l.append(4); assert next(z) == (2, 'a') and list(x) == [3, 4] and list(c) == [(1, 'b')]",
    ),
    Kind("struct", "import struct\nx = struct.Struct('<I')", "assert x.unpack(x.pack(7)) == (7,)"),
    Kind(
        "simple namespace",
        "from types import SimpleNamespace\nx = SimpleNamespace(a=[1]); y = x.a",
        "assert x.a is y",
    ),
    Kind(
        "module",
        "import math\nimport os.path as x\nimport xml.dom.minidom",
        "assert x.join('a', 'b') == 'a/b' and math.pi > 3 and xml.dom",
    ),
    Kind(
        "module made by hand",
        "import types\nx = types.ModuleType('made', 'doc'); x.value = [1]; v = x.value",
        "assert x.value is v and x.__doc__ == 'doc'",
    ),
    Kind(
        "what a process has one of",
        "import os, sys\nx = os.environ\np = sys.path\no = [sys.stdout]",
        "assert x is os.environ and p is sys.path and o[0] is sys.stdout",
    ),
    Kind(
        "sentinels",
        "import dataclasses, inspect\nx = [dataclasses.MISSING, inspect.Parameter.empty]\ns = object()\nd = {1: s}",
        "assert x[0] is dataclasses.MISSING and x[1] is inspect.Parameter.empty and d[1] is s",
    ),
    Kind("globals", "x = globals()\nn = [x]", "assert x is globals() and n[0] is x"),
    Kind(
        "copy of what a module has",
        "import mimetypes\nx = mimetypes.types_map_default if hasattr(mimetypes, 'types_map_default') else mimetypes.common_types",
        "assert x",
        note="a copy of what module 'mimetypes' holds",
    ),
)

CODE = (
    Kind(
        "function",
        "def x(a, b=[1], *, c: int = 3) -> int:\n    'doc'\n    return y + a + b[0] + c\ny = 1\nx.mark = 5",
        "assert x(1) == 6 and x.__doc__ == 'doc' and x.mark == 5 and x.__annotations__ == {'c': int, 'return': int}\ny = 100\nassert x(1) == 105 and x.__globals__ is globals()",
    ),
    Kind("recursive function", "def x(n): return 1 if n < 2 else n * x(n - 1)", "assert x(5) == 120"),
    Kind("lambda", "x = lambda a: a + y\ny = 1", "assert x(1) == 2 and x.__name__ == '<lambda>'"),
    Kind(
        "closures that share",
        "def make():\n    n = 0\n    def add():\n        nonlocal n; n += 1\n    return add, lambda: n\nadd, x = make(); add()",
        "add(); assert x() == 2",
    ),
    Kind(
        "closure that holds itself",
        "def make():\n    def inner(n): return n and inner(n - 1)\n    return inner\nx = make()",
        "assert x(3) == 0",
    ),
    Kind(
        "decorated function",
        "import functools\ndef twice(f):\n    @functools.wraps(f)\n    def inner(*a): return f(f(*a))\n    return inner\n@twice\ndef x(n): return n + 1",
        "assert x(1) == 3 and x.__name__ == 'x' and x.__wrapped__(1) == 2",
    ),
    Kind(
        "cached function",
        "import functools\n@functools.lru_cache(maxsize=9)\ndef x(n): return n + 1 if n < 3 else x(n - 1)\nx(5)",
        "assert x(5) == 3 and x.cache_parameters()['maxsize'] == 9 and x.cache_info().maxsize == 9",
    ),
    Kind(
        "partial",
        "import functools, operator\nl = []\nx = functools.partial(list.append, l)\nadd = functools.partial(operator.add, 2)",
        "x(1); assert l == [1] and add(3) == 5",
    ),
    Kind(
        "generic function",
        "import functools\n@functools.singledispatch\ndef x(a): return 'any'\n@x.register\ndef _(a: int): return 'int'\nx('a'), x(1)",
        "assert x(1) == 'int' and x('') == 'any'",
    ),
    Kind(
        "coroutine function",
        "async def x(): return 5\ndef g(): yield 1",
        "import asyncio; assert asyncio.run(x()) == 5 and list(g()) == [1]",
    ),
    Kind("code", "x = compile('1 + y', 'f', 'eval')\ny = 2", "assert eval(x) == 3"),
    Kind(
        "methods",
        "class C:\n    def m(self): return self.n\nc = C(); c.n = 5\nx = c.m\na = [].append\nl = [1]; p = l.pop",
        "c.n = 6; assert x() == 6 and x.__self__ is c and p() == 1 and l == []",
    ),
    Kind(
        "library's functions",
        "from math import sqrt as x\nfrom os.path import join\nfrom collections import OrderedDict as O\nl = [x, O]",
        "import math; assert x is math.sqrt and l[0] is x and O is __import__('collections').OrderedDict",
    ),
    Kind(
        "function of another namespace",
        "space = {'k': 2}\nexec('def f(): return k', space)\nx = space['f']",
        "space['k'] = 3; assert x() == 3 and x.__globals__ is space",
    ),
    Kind(
        "context manager",
        "import contextlib\n@contextlib.contextmanager\ndef x(): yield 5",
        "with x() as v: assert v == 5",
    ),
)

CLASSES = (
    Kind(
        "instance",
        "class C:\n    kind = 'c'\n    def __init__(self, v): self.v = v\n    def get(self): return super().__repr__() and self.v\nx = C([1]); y = C(x.v)",
        "assert type(x) is C and x.get() == [1] and x.v is y.v and x.kind == 'c'\nC.kind = 'd'; assert x.kind == 'd'",
    ),
    Kind(
        "class that was defined again",
        "class C:\n    def m(self): return 1\nx = C(); y = C()\nclass C:\n    def m(self): return 2\nz = C()",
        "assert x.m() == y.m() == 1 and z.m() == 2 and type(x) is type(y) and type(x) is not C and type(z) is C",
    ),
    Kind(
        "slots",
        "class C:\n    __slots__ = ('a', '__b')\n    def __init__(self): self.a = 1; self.__b = 2\n    def b(self): return self.__b\nx = C()",
        "assert x.a == 1 and x.b() == 2 and not hasattr(x, '__dict__')",
    ),
    Kind(
        "properties",
        "import functools\nclass C:\n    n = 0\n    @property\n    def p(self): return 5\n    @p.setter\n    def p(self, v): self.n = v\n    @functools.cached_property\n    def c(self): return [1]\n    @staticmethod\n    def s(): return 's'\n    @classmethod\n    def k(cls): return cls\nx = C(); x.c.append(2)",
        "x.p = 3; assert x.n == 3 and x.p == 5 and x.c == [1, 2] and x.s() == 's' and x.k() is C and C().c == [1]",
    ),
    Kind(
        "dataclass",
        "from dataclasses import *\n@dataclass(order=True)\nclass P:\n    a: int\n    b: list = field(default_factory=list)\nx = P(1, [2])",
        "assert x == P(1, [2]) and P(1) < P(2) and [f.name for f in fields(P)] == ['a', 'b'] and replace(x, a=5).a == 5 and repr(x) == 'P(a=1, b=[2])'",
    ),
    Kind(
        "frozen dataclass with slots",
        "from dataclasses import *\n@dataclass(frozen=True, slots=True)\nclass P:\n    a: int = 1\nx = {P(2): 'two'}",
        "assert x[P(2)] == 'two' and asdict(P()) == {'a': 1}",
    ),
    Kind(
        "named tuples",
        "from collections import namedtuple\nfrom typing import NamedTuple\nP = namedtuple('P', 'a b', defaults=[5])\nclass Q(NamedTuple):\n    n: int = 3\n    def twice(self): return 2 * self.n\nx = P(1); q = Q(4)",
        "assert x == (1, 5) and x._replace(a=2).a == 2 and type(x) is P and q.twice() == 8 and Q().n == 3 and type(q) is Q",
    ),
    Kind(
        "enum",
        "import enum\nclass Color(enum.Enum):\n    RED = 1\n    CRIMSON = 1\n    BLUE = 'b'\n    def low(self): return self.name.lower()\nclass F(enum.Flag):\n    A = enum.auto(); B = enum.auto()\nx = Color.RED; f = F.A | F.B\nd = {Color.BLUE: x}",
        "assert x is Color.RED is Color.CRIMSON and x.low() == 'red' and Color('b') is Color.BLUE and d[Color.BLUE] is x and F.B in f and list(Color) == [Color.RED, Color.BLUE]",
    ),
    Kind(
        "enum with more to it",
        "import enum\nclass Planet(float, enum.Enum):\n    EARTH = 5.9\n    def __init__(self, mass): self.heavy = mass > 5\nclass S(enum.StrEnum):\n    A = enum.auto()\nclass I(enum.IntEnum):\n    ONE = 1\nx = Planet.EARTH",
        "assert x.heavy and x == 5.9 and x is Planet.EARTH and S.A == 'a' and I.ONE + 1 == 2",
    ),
    Kind(
        "abstract class",
        "import abc\nclass A(abc.ABC):\n    @abc.abstractmethod\n    def m(self): ...\nclass B(A):\n    def m(self): return 1\nclass V: ...\nA.register(V)\nx = B()",
        "assert isinstance(x, A) and isinstance(V(), A) and x.m() == 1\ntry: A()\nexcept TypeError: pass\nelse: raise AssertionError",
    ),
    Kind(
        "generic class and protocol",
        "from typing import *\nT = TypeVar('T', bound=int)\nN = NewType('N', int)\nclass G(Generic[T]):\n    def get(self) -> T: return self.v\nclass P(Protocol):\n    def get(self): ...\nclass D(TypedDict):\n    a: int\nx: G[int] = G(); x.v = N(3)",
        "assert x.get() == 3 and G[int].__origin__ is G and G.__parameters__ == (T,) and D(a=1) == {'a': 1} and N(5) == 5 and T.__bound__ is int",
    ),
    Kind(
        "metaclass and hooks",
        "made = []\nclass Meta(type):\n    def __new__(m, name, bases, ns, **k):\n        made.append(name); return super().__new__(m, name, bases, ns)\nclass Base(metaclass=Meta):\n    def __init_subclass__(cls, **k): made.append('sub ' + cls.__name__)\nclass Sub(Base): pass\nx = Sub()",
        "assert made == ['Base', 'Sub', 'sub Sub'] and type(Sub) is Meta and isinstance(x, Base)\nclass Other(Base): pass\nassert made[-1] == 'sub Other'",
    ),
    Kind(
        "class that holds instances",
        "class C:\n    all = []\n    def __init__(self, n): self.n = n; C.all.append(self)\n    def __getstate__(self): return {'packed': self.n}\n    def __setstate__(self, s): self.n = s['packed']\nx = C(1); y = C(2)",
        "assert C.all == [x, y] and [c.n for c in C.all] == [1, 2]",
    ),
    Kind(
        "nested class",
        "class Outer:\n    class Inner:\n        v = 1\nx = Outer.Inner()\nlocal = (lambda: type('L', (), {'q': 2}))()()",
        "assert type(x) is Outer.Inner and x.v == 1 and local.q == 2",
    ),
    Kind(
        "descriptors",
        "class D:\n    def __set_name__(self, o, n): self.n = n\n    def __get__(self, i, o): return self.n if i else self\nclass C:\n    field = D()\nx = C()",
        "assert x.field == 'field'",
    ),
    Kind(
        "subclass of a builtin",
        "class L(list):\n    def __init__(self, *a): super().__init__(*a); self.tag = 't'\nclass D(dict):\n    def __missing__(self, k): return k\nx = L([1, 2]); d = D(a=1); d.tag = x",
        "assert x == [1, 2] and x.tag == 't' and d['q'] == 'q' and d.tag is x",
    ),
    Kind(
        "own way to be saved",
        "class C:\n    def __init__(self, a): self.a = a; self.cache = {}\n    def __getstate__(self): return self.a\n    def __setstate__(self, a): self.a = a\nx = C(5)",
        "assert x.a == 5",
        note="without cache, which C leaves out",
    ),
    Kind(
        "exception",
        "class E(ValueError):\n    def __init__(self, a, b): super().__init__(f'{a}{b}'); self.b = b\ntry:\n    try: 1 / 0\n    except ZeroDivisionError as z: raise E(1, 2) from z\nexcept E as e: x = e\no = OSError(2, 'gone', 'f')",
        "assert str(x) == '12' and x.b == 2 and type(x.__cause__) is ZeroDivisionError and o.filename == 'f' and type(o) is FileNotFoundError",
        note="without its traceback",
    ),
    Kind(
        "weak references",
        "import weakref\nclass C: pass\nc = C(); x = weakref.ref(c)\nw = weakref.WeakValueDictionary(a=c)\ns = weakref.WeakSet([c])\ngone = weakref.ref(C())",
        "assert x() is c and w['a'] is c and c in s and gone() is None",
    ),
    Kind(
        "type aliases",
        "x = [list[int], int | None, dict[str, 'C']]",
        "assert x == [list[int], int | None, dict[str, 'C']]",
    ),
    Kind(
        "context of decimals and loggers",
        "import decimal, logging\nx = decimal.Context(prec=5)\nlog = logging.getLogger('some')",
        "assert x.prec == 5 and log is logging.getLogger('some')",
    ),
)

DATA = (
    Kind(
        "numpy array",
        "import numpy as np\nx = np.arange(6.).reshape(2, 3)",
        "assert x.tolist() == [[0, 1, 2], [3, 4, 5]]; x[0] = 9",
    ),
    Kind(
        "large numpy array",
        "import numpy as np\nx = np.arange(10**6)\nd = {'x': x, 'y': x * 2}",
        "assert (d['y'] == 2 * np.arange(10**6)).all() and d['x'] is x; d['y'][0] = 1; assert x[0] == 0",
    ),
    Kind(
        "equal arrays are two",
        "import numpy as np\nx = np.zeros(10**6); y = np.zeros(10**6); d = [np.zeros(10**6), np.zeros(10**6)]",
        "x[0] = 1; d[0][0] = 1; assert y[0] == 0 and d[1][0] == 0",
    ),
    Kind(
        "views of an array",
        "import numpy as np\na = np.arange(12.).reshape(3, 4)\nx = a[1:, ::2]; t = a.T; r = a[::-1]; d = {'f': a.view('i8')}",
        "x[0, 0] = 99; assert a[1, 0] == 99 and t[0, 1] == 99 and r[1, 0] == 99 and x.strides == (32, 16); a[:] = 0; assert not d['f'].any()",
    ),
    Kind(
        "views without their array",
        "import numpy as np\nx = np.arange(10)[2:8]\ny = x[1:]\ndel x\nx = [y, y[1:]]",
        "y[1] = 50; assert x[1][0] == 50 and x[0] is y",
    ),
    Kind(
        "broadcast array",
        "import numpy as np\nx = np.broadcast_to(np.arange(3), (10**6, 10**5, 3))",
        "assert x.shape == (10**6, 10**5, 3) and x[5, 5].tolist() == [0, 1, 2] and not x.flags.writeable",
    ),
    Kind(
        "fortran and read only",
        "import numpy as np\nx = np.asfortranarray([[1, 2], [3, 4]])\ny = np.arange(3); y.flags.writeable = False\nz = np.arange(9)[::2]; z.flags.writeable = False",
        "assert x.flags.f_contiguous and x.tolist() == [[1, 2], [3, 4]] and not y.flags.writeable and not z.flags.writeable and z[1] == 2",
    ),
    Kind(
        "structured array",
        "import numpy as np\nx = np.array([(1, 2.5, 'a')], dtype=[('i', 'i4'), ('f', 'f8'), ('s', 'U3')])\nf = x['f']\nr = x.view(np.recarray)",
        "assert x['s'][0] == 'a' and r.i[0] == 1 and type(r) is np.recarray; f[0] = 7; assert x['f'][0] == 7",
    ),
    Kind(
        "array of objects",
        "import numpy as np\nl = [1]\nx = np.array([l, 'a', None], dtype=object)",
        "assert x[0] is l and x[1] == 'a'",
    ),
    Kind(
        "array of texts and times",
        "import numpy as np\nx = np.array(['é', 'bc']); d = np.array(['2026-01-01', 'NaT'], dtype='M8[D]'); s = np.array(['a', 'long text'], dtype=np.dtypes.StringDType())",
        "assert x[0] == 'é' and str(d[0]) == '2026-01-01' and np.isnat(d[1]) and s[1] == 'long text'",
    ),
    Kind(
        "numpy scalars",
        "import numpy as np\nx = [np.float32(1.5), np.int64(3), np.datetime64('2026-01-01'), np.bool_(True), np.float64]",
        "assert x[0] == 1.5 and type(x[0]) is np.float32 and x[3] and x[4] is np.float64",
    ),
    Kind(
        "empty and scalar arrays",
        "import numpy as np\nx = np.empty((0, 3)); y = np.array(5); z = np.ones(0)[::2]",
        "assert x.shape == (0, 3) and y[()] == 5 and z.size == 0; y[()] = 6",
    ),
    Kind(
        "memory mapped array",
        "import numpy as np, tempfile, os\npath = os.path.join(tempfile.mkdtemp(), 'f')\nx = np.memmap(path, dtype='f8', mode='w+', shape=(3, 2)); x[:] = 5\npart = x[1:]",
        "assert x.tolist() == [[5, 5]] * 3 and type(x) is np.memmap; x[1] = 6; assert part[0, 0] == 6\nx.flush(); assert np.fromfile(path)[2] == 6",
    ),
    Kind(
        "masked array",
        "import numpy as np\nx = np.ma.array([1, 2, 3], mask=[0, 1, 0])",
        "assert x.sum() == 4 and x.mask.tolist() == [False, True, False]",
    ),
    Kind(
        "matrix and polynomial",
        "import numpy as np\nx = np.matrix([[1, 2]]); p = np.polynomial.Polynomial([1, 2])",
        "assert (x * x.T)[0, 0] == 5 and p(2) == 5",
    ),
    Kind(
        "numpy generator",
        "import numpy as np\nx = np.random.default_rng(5); x.random()\ny = np.random.RandomState(1)",
        "z = np.random.default_rng(5); z.random(); assert x.random() == z.random() and y.rand() == np.random.RandomState(1).rand()",
    ),
    Kind(
        "ufunc",
        "import numpy as np\nx = np.add\nv = np.vectorize(lambda a: a + 1)",
        "assert x is np.add and v([1, 2]).tolist() == [2, 3]",
    ),
    Kind(
        "sparse matrix",
        "import scipy.sparse as sp\nx = sp.csr_matrix([[0, 1], [2, 0]])\ny = sp.coo_array([[0, 3]])",
        "assert x.toarray().tolist() == [[0, 1], [2, 0]] and y.sum() == 3",
    ),
    Kind(
        "frame",
        "import pandas as pd, numpy as np\nx = pd.DataFrame({'i': [1, 2], 'f': [1.5, None], 's': ['a', None], 't': pd.to_datetime(['2026-01-01', None]), 'c': pd.Categorical(['u', 'v'])}, index=pd.Index(['p', 'q'], name='n'))\nx.attrs['unit'] = 'm'",
        "y = pd.DataFrame({'i': [1, 2], 'f': [1.5, None], 's': ['a', None], 't': pd.to_datetime(['2026-01-01', None]), 'c': pd.Categorical(['u', 'v'])}, index=pd.Index(['p', 'q'], name='n'))\npd.testing.assert_frame_equal(x, y); assert x.attrs == {'unit': 'm'}; x.loc['p', 'i'] = 9; x['new'] = 1",
    ),
    Kind(
        "large frame",
        "import pandas as pd, numpy as np\nx = pd.DataFrame({'a': np.arange(400_000), 'b': np.arange(400_000) / 3, 's': [f'row {n}' for n in range(400_000)]})\nhead = x.head(3)",
        "assert x.a.sum() == 79999800000 and x.s.iloc[-1] == 'row 399999' and head.s.tolist() == ['row 0', 'row 1', 'row 2']; x.loc[0, 'a'] = 7; assert head.a.iloc[0] == 0",
    ),
    Kind(
        "frames never show each other's changes",
        "import pandas as pd\nf = pd.DataFrame({'a': [1., 2], 'b': [3., 4]})\nx = f['a']; g = f.rename(columns=str.upper); h = f[:1]",
        "f.loc[0, 'a'] = 99; assert x[0] == 1 and g.A[0] == 1 and h.a[0] == 1; x.iloc[1] = 55; assert f.a[1] == 2",
    ),
    Kind(
        "array out of a frame",
        "import pandas as pd\nf = pd.DataFrame({'a': [1., 2]})\nx = f['a'].to_numpy()",
        "assert x.tolist() == [1, 2] and not x.flags.writeable",
        note="no longer shared",
    ),
    Kind(
        "frame with objects",
        "import pandas as pd\nl = [1]\nx = pd.DataFrame({'o': pd.Series([l, {'k': l}, 'text'], dtype=object), 'n': [1, 2, 3]})",
        "assert x.o[0] is l and x.o[1]['k'] is l and x.n.sum() == 6",
    ),
    Kind(
        "series and indexes",
        "import pandas as pd\nx = pd.Series([1, 2], index=pd.MultiIndex.from_tuples([('a', 1), ('b', 2)], names=['l', 'm']))\nd = pd.date_range('2026', periods=3, tz='Europe/Berlin', freq='D')\np = pd.period_range('2026', periods=2, freq='M')\ni = pd.IntervalIndex.from_breaks([0, 1, 2])\nq = pd.array([1, None], dtype='Int64')",
        "assert x['b', 2] == 2 and d.freqstr == 'D' and str(d.tz) == 'Europe/Berlin' and str(p[1]) == '2026-02' and 0.5 in i[0] and q[1] is pd.NA",
    ),
    Kind(
        "grouped frame",
        "import pandas as pd\nf = pd.DataFrame({'k': list('aab'), 'v': [1, 2, 3]})\nx = f.groupby('k')",
        "assert x.v.sum().tolist() == [3, 3]",
    ),
    Kind(
        "arrow table",
        "import pyarrow as pa\nx = pa.table({'a': [1, None], 's': ['x', 'yy']})\nb = x.to_batches()[0]; c = x['s']; a = pa.array([1, 2])",
        "assert x.to_pylist() == [{'a': 1, 's': 'x'}, {'a': None, 's': 'yy'}] and b.num_rows == 2 and c.to_pylist() == ['x', 'yy'] and a[1].as_py() == 2",
    ),
    Kind(
        "part of a large arrow table",
        "import pyarrow as pa\nx = pa.table({'a': range(10**6)}).slice(5, 3)\nc = x['a']; b = x.to_batches()[0]; a = pa.array(range(10**6))[7:9]",
        "assert x['a'].to_pylist() == [5, 6, 7] and c.to_pylist() == [5, 6, 7] and b.num_rows == 3 and a.to_pylist() == [7, 8]",
    ),
    Kind(
        "polars frame",
        "import polars as pl\nx = pl.DataFrame({'a': [1, 2], 's': ['x', None]}).filter(pl.col('a') > 0)\ns = x['a']; e = pl.col('a') * 2",
        "assert x.to_dict(as_series=False) == {'a': [1, 2], 's': ['x', None]} and s.sum() == 3 and x.select(e)['a'].to_list() == [2, 4]",
    ),
    Kind(
        "lazy polars frame",
        "import polars as pl\nx = pl.DataFrame({'a': [1, 2]}).lazy().filter(pl.col('a') > 1)",
        "assert x.collect()['a'].to_list() == [2]",
    ),
    Kind(
        "fitted model",
        "import numpy as np\nfrom sklearn.linear_model import LinearRegression\nX = np.arange(6.).reshape(3, 2); y = np.array([1., 2, 3])\nx = LinearRegression().fit(X, y)\nwas = x.predict(X)",
        "assert (x.predict(X) == was).all()",
    ),
    Kind(
        "fitted pipeline",
        "import numpy as np\nfrom sklearn.pipeline import make_pipeline\nfrom sklearn.preprocessing import *\nfrom sklearn.ensemble import RandomForestClassifier\nX = np.arange(40.).reshape(20, 2); y = np.arange(20) % 2\nx = make_pipeline(FunctionTransformer(lambda a: a + 1), StandardScaler(), RandomForestClassifier(5, random_state=1)).fit(X, y)\nwas = x.predict_proba(X)",
        "assert (x.predict_proba(X) == was).all()",
    ),
    Kind(
        "own estimator",
        "from sklearn.base import BaseEstimator, clone\nclass E(BaseEstimator):\n    def __init__(self, k=1): self.k = k\n    def fit(self, X, y=None): self.fitted_ = self.k; return self\nx = E(3).fit(None)",
        "assert x.fitted_ == 3 and clone(x).k == 3 and x.get_params() == {'k': 3}",
    ),
    Kind(
        "statistics",
        "import statsmodels.formula.api as smf, pandas as pd\nf = pd.DataFrame({'a': [1., 2, 3, 5], 'b': [2., 4, 6, 9]})\nx = smf.ols('b ~ a', f).fit()\nwas = x.params['a']",
        "assert x.params['a'] == was and x.predict(f).shape == (4,)",
    ),
    Kind(
        "figure",
        "import matplotlib; matplotlib.use('Agg')\nimport matplotlib.pyplot as plt\nx, ax = plt.subplots()\nline, = ax.plot([1, 2], [3, 4], label='l'); ax.set_title('title'); ax.legend()\nplt.close(x)",
        "import io\nassert ax is x.axes[0] and ax.get_title() == 'title' and line in ax.lines; b = io.BytesIO(); x.savefig(b); assert b.getvalue()[:4] == b'\\x89PNG'\nimport matplotlib._pylab_helpers as h; assert not h.Gcf.figs",
    ),
    Kind(
        "image",
        "from PIL import Image\nx = Image.new('RGB', (3, 2), (1, 2, 3))",
        "assert x.getpixel((2, 1)) == (1, 2, 3) and x.size == (3, 2)",
    ),
    Kind(
        "interpolation and spline",
        "import numpy as np\nfrom scipy.interpolate import CubicSpline\nfrom scipy import stats\nx = CubicSpline([0, 1, 2], [0, 1, 4]); n = stats.norm(loc=2)",
        "assert abs(x(1.5) - 2.25) < 1e-9 and n.mean() == 2",
    ),
    Kind(
        "workbook",
        "import openpyxl\nx = openpyxl.Workbook(); x.active['A1'] = 5",
        "assert x.active['A1'].value == 5",
    ),
)

LOST = (
    Kind("generator", "x = (n for n in [1, 2]); next(x)", lost="a generator cannot be saved half way"),
    Kind("coroutine", "async def f(): pass\nx = f()", "x = None", lost="a coroutine cannot"),
    Kind("open file", "x = open(__import__('os').devnull)", lost="an open file closes with its process"),
    Kind("socket", "import socket\nx = socket.socket()", lost="a network connection ends with its process"),
    Kind("lock", "import threading\nx = threading.Lock()", lost="a lock belongs to the threads"),
    Kind(
        "thread",
        "import threading\nx = threading.Thread(target=print)",
        lost="a thread ends with its process",
    ),
    Kind(
        "sqlite connection",
        "import sqlite3\nx = sqlite3.connect(':memory:')",
        lost="a database connection ends",
    ),
    Kind(
        "duckdb connection",
        "import duckdb\nx = duckdb.connect(config={'threads': 1})",
        lost="a database connection ends",
    ),
    Kind(
        "duckdb relation",
        "import duckdb\nx = duckdb.connect(config={'threads': 1}).sql('select 1 as a')",
        lost="a query belongs to its connection",
    ),
    Kind("iterator over a dict", "x = iter({1: 2})", lost="a running iterator over a dict"),
)

KINDS = (*PLAIN, *CODE, *CLASSES, *DATA, *LOST)
