"""Guard rails for code: what they stop when they are on, and that ordinary work goes through."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.policy import Guards, strict
from pinfold.policy.judge import check_code

pytestmark = [pytest.mark.unit, pytest.mark.installed]

MATH = Guards(imports=frozenset({"math", "os.path"}))
DECODED = Guards(decoded=True)


@pytest.mark.parametrize(
    "code",
    [
        "import socket",
        "import math, socket",
        "from socket import socket",
        "import socket as math",
        "import os",
        "def f():\n    import socket",
        "__import__('socket')",
        "importlib.import_module('socket')",
        "from importlib import import_module as m",
        "__import__(name)",
        "__import__('so' + 'cket')",
        "f = __import__",
        "from . import x",
        "__builtins__['__import__']('socket')",
        "try:\n    import socket\nexcept ImportError: pass",
        "%run x.py",
        ">>> import socket",
        "!ls",
    ],
)
def test_imports_that_are_not_authorised_are_refused(code: str) -> None:
    assert check_code(code, MATH) is not None
    assert check_code(code, Guards()) is None


@pytest.mark.parametrize(
    "code",
    ["import math", "from math import pi", "import os.path", "x = 1", "await f()", "  import math", "'import socket'"],
)
def test_authorised_imports_pass(code: str) -> None:
    assert check_code(code, MATH) is None


@pytest.mark.parametrize(
    "code",
    [
        "exec(base64.b64decode(x))",
        "eval(bytes.fromhex('61'))",
        "s = codecs.decode('vzcbeg bf', 'rot13')\nexec(s)",
        "s = 'vzcbeg'.encode().decode('rot13')\nexec(s)",
        "exec(zlib.decompress(data))",
        "exec(''.join(chr(c) for c in [112, 114]))",
        "exec('tnirp'[::-1])",
        "os.system(base64.b64decode(x).decode())",
        "subprocess.run(base64.b64decode(x), shell=True)",
        "subprocess.run(args=base64.b64decode(x))",
        "a = base64.b64decode(x)\nb = a + b''\nc = b\nexec(c)",
        "compile(base64.b64decode(x), 'f', 'exec')",
        "from subprocess import run\nrun(base64.b64decode(x))",
        "def f():\n    return base64.b64decode(x)\nexec(f())",
        "exec(bytes([1, 2]))",
        "if (s := base64.b64decode(x)):\n    exec(s)",
        "for s in base64.b64decode(x):\n    exec(s)",
        "exec(marshal.loads(x))",
        "os.execv('/bin/sh', ['sh', '-c', base64.b64decode(x)])",
    ],
)
def test_running_decoded_text_is_refused(code: str) -> None:
    assert "decoded" in (check_code(code, DECODED) or "")
    assert check_code(code, Guards()) is None


@pytest.mark.parametrize(
    "code",
    [
        "data = base64.b64decode(x)\nprint(len(data))",
        "img = zlib.decompress(raw)",
        "eval('1 + 1')",
        "exec(open('f').read())",
        "subprocess.run(['ls'])",
        "out = subprocess.check_output(['ls']).decode()\nprint(out)",
        "out = subprocess.check_output(['ls']).decode('utf-8')\nsubprocess.run(['wc', out])",
        "re.compile(pattern[::-1])",
        "rows = con.execute(sql)",
        "asyncio.run(main())",
        "json.loads(text)",
        "text[::-1]",
    ],
)
def test_decoding_and_running_each_on_their_own_pass(code: str) -> None:
    assert check_code(code, DECODED) is None


def test_strict_lets_ordinary_data_work_through() -> None:
    code = """
import pandas as pd, numpy as np
import matplotlib.pyplot as plt
from pathlib import Path
from sklearn.linear_model import LinearRegression
import duckdb, json, re
frame = pd.read_csv("sales.csv")
frame.groupby("region").revenue.sum().plot.bar()
"""
    assert check_code(code, strict()) is None
    assert check_code("import subprocess", strict()) == "the guards do not let code import subprocess"


@given(st.text(max_size=60))
def test_no_code_breaks_the_guards(code: str) -> None:
    assert check_code(code, Guards()) is None
    check_code(code, strict())
