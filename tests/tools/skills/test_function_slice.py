"""A function is cut out of its file with what it needs, and refused where it cannot stand alone."""

from __future__ import annotations

import pytest

from pinfold.tools import BadTool
from pinfold.tools.skills.function_slice import check_source, slice_function
from pinfold.tools.skills.recorded_calls import calls_in_cells, calls_in_docstring
from pinfold.tools.skills.signature import read_signature

pytestmark = pytest.mark.unit

SOURCE = '''\
from __future__ import annotations
import os, math
from statistics import mean, median as middle

LIMIT = 3  # of values
OTHER = os.getcwd()

def helper(values):
    return [v for v in values if v < LIMIT]

class Unused: ...

def trim(values: list[float], *, power: int = 2) -> float:
    """Mean of the small values."""
    def inner(x): return math.pow(x, power)
    return mean(inner(v) for v in helper(values))
'''


def test_a_slice_holds_exactly_what_the_function_needs() -> None:
    cut = slice_function(SOURCE, "trim", "a.py")
    assert cut.source == (
        "from __future__ import annotations\nimport math\nfrom statistics import mean\nLIMIT = 3\n\n\n"
        "def helper(values):\n    return [v for v in values if v < LIMIT]\n\n\n" + SOURCE[SOURCE.index("def trim") :]
    )
    assert set(cut.needs) == {"math", "mean", "helper", "LIMIT"}


def test_a_signature_becomes_a_schema_without_being_run() -> None:
    signature = read_signature(slice_function(SOURCE, "trim", "a.py").function)
    assert signature.written == "(values: list[float], *, power: int=2) -> float"
    assert signature.parameters == {
        "additionalProperties": False,
        "properties": {
            "values": {"items": {"type": "number"}, "type": "array"},
            "power": {"type": "integer", "default": 2},
        },
        "type": "object",
        "required": ["values"],
    }
    assert signature.returns == {"type": "number"}


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("N = 0\ndef f():\n    global N\n    N += 1", "changes the global 'N'"),
        ("C = {}\ndef f(x):\n    C[x] = 1", "changes 'C', which belongs to the module"),
        ("C = []\ndef f(x):\n    C.append(x)", "changes 'C', which belongs to the module"),
        ("C = []\ndef g(x):\n    C.append(x)\ndef f(x):\n    g(x)", "g changes 'C'"),
        ("from . import a\ndef f():\n    return a", "relative import"),
        ("def f():\n    from .a import b\n    return b", ""),
        ("def outer():\n    def f(): ...", "f lies inside outer; move it to the top level"),
        ("def f():\n    return missing", "'missing' is used and not defined in a.py"),
        ("from os import *\ndef f():\n    return getcwd()", "import it by name"),
        ("A = 1\nA = 2\ndef f():\n    return A", "bound more than once"),
        ("try:\n    A = 1\nexcept OSError:\n    pass\ndef f():\n    return A", "inside a larger statement"),
        ("def g(): ...", "a.py has no function 'f'; it has g"),
        ("def f(:", "line 1: it is not valid Python"),
    ],
)
def test_what_cannot_stand_alone_is_refused_with_its_own_reason(source: str, words: str) -> None:
    with pytest.raises(BadTool) as caught:
        check_source(slice_function(source, "f", "a.py").source, "none")
    assert words in str(caught.value)


def test_a_local_variable_may_have_the_name_of_a_global() -> None:
    source = "C = []\ndef f(x):\n    C = []\n    C.append(x)\n    return C"
    assert slice_function(source, "f", "a.py").needs == ()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("import socket\n    return socket.gethostname()", "socket reaches the network"),
        ("import urllib.request as r\n    return r.urlopen(x)", "reaches the network"),
        ("from subprocess import run\n    return run(x)", "starts or signals processes"),
        ("import os\n    return os.environ", "reads the environment"),
        ("from os import getenv as g\n    return g(x)", "reads the environment"),
        ("return eval(x)", "eval hides what it does"),
        ("return __import__('os')", "hides what it does"),
        ("return ().__class__.__subclasses__()", "reaches into the interpreter"),
        ("return open(x).read()", "open opens files; declare effects=files"),
        ("return 'ghp_a1B2c3D4e5F6a1B2c3D4e5F6a1B2c3D4e5F6'", "looks like a secret"),
        ("return '" + "x" * 20_000 + "'", "20,000 is the most"),
    ],
)
def test_source_that_does_more_than_compute_is_refused_by_name(body: str, words: str) -> None:
    with pytest.raises(BadTool, match=r".") as caught:
        check_source(f"def f(x):\n    {body}\n", "none")
    assert words in str(caught.value)


def test_ordinary_source_is_fine_and_files_may_be_declared() -> None:
    check_source(
        "import os, re, math\ndef f(x):\n    run = re.sub('a', 'b', x)\n    return os.path.join(run, x)\n", "none"
    )
    check_source("def f(x):\n    return open(x).read()\n", "files")
    check_source("from urllib.parse import quote\ndef f(x, open=1):\n    return quote(x) + str(open)\n", "none")


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("def f(x):", "parameter 'x' of f has no type"),
        ("def f(x: object):", "has the type object, which JSON cannot hold"),
        ("def f(x: 'np.ndarray'):", "which JSON cannot hold"),
        ("def f(*x: int):", "cannot be passed by name"),
        ("def f(x: int = max):", "is not a plain value"),
        ("def f(x: int) -> set[int]:", "the result of f has the type set[int]"),
        ("async def f(x: int):", "is async or yields"),
    ],
)
def test_a_signature_that_makes_no_schema_is_refused(line: str, words: str) -> None:
    with pytest.raises(BadTool) as caught:
        read_signature(slice_function(f'{line}\n    """Does."""\n', "f", "a.py").function)
    assert words in str(caught.value)


def test_a_function_without_a_docstring_is_refused() -> None:
    with pytest.raises(BadTool, match="has no docstring"):
        read_signature(slice_function("def f(x: int):\n    return x\n", "f", "a.py").function)


def test_calls_of_cells_are_recorded_with_plain_arguments_and_the_value_of_the_last_one() -> None:
    cells = [
        (1, "f(0)", "0"),
        (2, "open('a.py', 'w').write('def f(x): ...')", "15"),
        (3, "values = [1, 2]\nprint(f(values))\na.f(x=3)", "9"),
        (4, "f(unknown)", "1"),
        (5, "%magic f(4)", None),
        (6, "grows = []\ngrows.append(1)\nf(grows)", "1"),
        (7, "try:\n    f(7)\nexcept ValueError:\n    pass\nother.f(8)\ndef g():\n    return f(9)", "1"),
        (8, "assert f(10) == 1", None),
    ]
    found = calls_in_cells(cells, "f", ("x",), "a.py")
    assert [(one.args, one.origin, one.shown) for one in found] == [
        ({"x": [1, 2]}, "cell 3", None),
        ({"x": 10}, "cell 8", None),
        ({"x": 3}, "cell 3", "9"),
    ]


def test_examples_of_the_docstring_are_calls_with_their_result() -> None:
    found = calls_in_docstring("Adds.\n\n>>> f(1, y=2)\n3\n>>> g(1)\n1\n", "f", ("x", "y"))
    assert [(one.args, one.shown) for one in found] == [({"x": 1, "y": 2}, "3")]
