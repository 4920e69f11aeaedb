"""Formats an exception for the author of the cell: their frames, a library's last frame, and the failing line's values.

Also names the package of a missing module, and puts packages that were installed meanwhile on the import path.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from contextlib import suppress
from importlib import invalidate_caches
from traceback import FrameSummary, StackSummary, TracebackException
from types import FrameType, TracebackType

from .inventory import columns_of, describe_value, is_data, is_library_type, name_of

TYPE_CHECKING = False  # importing `typing` would take a quarter of the start-up time
if TYPE_CHECKING:
    from typing import Any


_PAIRS = """
Bio=biopython Crypto=pycryptodome OpenSSL=pyopenssl PIL=pillow attr=attrs bs4=beautifulsoup4 cairosvg=CairoSVG
cv2=opencv-python-headless dateutil=python-dateutil docx=python-docx dotenv=python-dotenv fitz=pymupdf git=gitpython
google.cloud.bigquery=google-cloud-bigquery google.cloud.storage=google-cloud-storage google.protobuf=protobuf
grpc=grpcio igraph=python-igraph imblearn=imbalanced-learn jwt=pyjwt kaleido=kaleido magic=python-magic
mpl_toolkits=matplotlib mysql=mysql-connector-python osgeo=gdal pkg_resources=setuptools pptx=python-pptx
psycopg2=psycopg2-binary pytorch_lightning=pytorch-lightning python_calamine=python-calamine
rest_framework=djangorestframework sentence_transformers=sentence-transformers serial=pyserial skimage=scikit-image
sklearn=scikit-learn slugify=python-slugify snappy=python-snappy usb=pyusb win32com=pywin32 wx=wxpython yaml=pyyaml
zmq=pyzmq
"""
DISTRIBUTIONS = {name: package for name, _, package in (pair.partition("=") for pair in _PAIRS.split())}
"""The package to install for a module, by the module's name."""
OWN_NAME = "pinfold"
"""Never suggested: a session cannot open another, and a package of this name on the index is not Pinfold."""


def package_of(missing: object) -> str:
    """Return what to install for the name of a ModuleNotFoundError; empty if installing would not help."""
    if type(missing) is not str or not missing.isprintable() or len(missing) > 100:
        return ""
    top = missing.partition(".")[0]
    is_there = missing not in DISTRIBUTIONS and (top in sys.stdlib_module_names or top in sys.modules)
    if top == OWN_NAME or is_there:
        return ""
    return DISTRIBUTIONS.get(missing) or DISTRIBUTIONS.get(top, top)


class Site:
    """A folder of installed packages, put last on the import path. Child processes find them by PYTHONPATH and PATH."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen = -1

    def refresh(self) -> None:
        """Add what was installed since the last call. Costs one `stat` if there is nothing new."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
            if changed == self._seen:
                return
            names = sorted(os.listdir(self._folder))
        except OSError:
            return  # the host makes the folder, perhaps later
        self._seen = changed
        with suppress(Exception):  # the program may have replaced `sys.path` or a finder
            for name in names:
                if not name.startswith("."):
                    path = f"{self._folder}/{name}"
                    if path not in sys.path:
                        sys.path.append(path)
                    _join("PYTHONPATH", path)
                    _join("PATH", f"{path}/bin")
            invalidate_caches()


def _join(variable: str, path: str) -> None:
    paths = [one for one in os.environ.get(variable, "").split(os.pathsep) if one]
    if path not in paths:
        os.environ[variable] = os.pathsep.join([*paths, path])


OURS = (__file__.rsplit("/", 2)[0] + "/", "<servers.")
"""Files whose frames are left out of tracebacks."""
LIBRARY_FOLDER = os.path.dirname(os.__file__) + "/"
INSTALLED = re.compile(r".*/(?:site|dist)-packages/")
FRAMES = 16
"""The most frames of the user's own that are shown; the middle of a deep recursion is left out."""
NAMES = 8
"""The most variables described."""
STATEMENT_LINES = 5
CHAINED = 20
CANDIDATES = 300
"""The most columns searched for a name like the missing one."""
COLUMN_CHARS = 100
MISSING = 3
"""The most missing columns that are reported."""
CO_OPTIMIZED = 0x1
REPLACEMENTS = {
    "'DataFrame' object has no attribute 'append'": "pandas removed append: add a row with df.loc[len(df)] = [...], a table with pd.concat([df, other])",
    "'Series' object has no attribute 'append'": "pandas removed append: use pd.concat([one, other])",
    "object has no attribute 'iteritems'": "pandas removed iteritems: use items()",
    "object has no attribute 'applymap'": "pandas removed applymap: use map()",
    "object has no attribute 'ix'": "pandas removed ix: use loc for labels, iloc for positions",
    "object has no attribute 'mad'": "pandas removed mad: use (x - x.mean()).abs().mean()",
    "fillna() got an unexpected keyword argument 'method'": "pandas removed method=: use ffill() or bfill()",
    "got an unexpected keyword argument 'squared'": "scikit-learn removed squared=: use root_mean_squared_error()",
}
"""Replacements for what models still write from older versions, by the end of the error's text."""

_STRING = re.compile(r"""(?<![\w'"])(?:[rbuRBU]{0,2})('[^'\n]*'|"[^"\n]*")|\#.*""")
_NAME = re.compile(r"(?<![\w.])[^\W\d]\w*")
_LISTED = re.compile(r"""\[((?:'[^']*'|"[^"]*")(?:,?\s+(?:'[^']*'|"[^"]*"))*)(?:, dtype=.*)?\]""")
"""`['a', 'b'] not in index`, `None of [Index(['a'], dtype='str')] are in the [columns]`, and others."""
_NOT_FOUND = re.compile(r"(?:Columns? not found: )?(.+?)(?: not found)?$")
_ONE = re.compile(r"""'([^']*)'|"([^"]*)\"""")


def format_error(raised: BaseException, trace: TracebackType | None) -> str:
    trace = trim_traceback(trace)
    told = TracebackException(type(raised), raised, trace, compact=True)
    notes, extra = _notes(raised, trace)
    _condense(told, notes)
    package = missing_package(raised)
    advice = f"`pip` name: {package}; `%pip install {package}` installs it\n" if package else ""
    if isinstance(raised, ModuleNotFoundError) and raised.name == OWN_NAME:
        advice = "Pinfold cannot be used inside its own sandbox; run this with a Python outside of it\n"
    return "".join(told.format()) + extra + advice


def trim_traceback(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the program's first frame on, without the guest's frames further down."""
    frames: list[TracebackType] = []
    while trace is not None:
        frames.append(trace)
        trace = trace.tb_next
    names = [frame.tb_frame.f_code.co_filename for frame in frames]
    first = next((place for place, name in enumerate(names) if name.startswith("<cell ")), 0)
    kept = [frames[place] for place in range(first, len(frames)) if not names[place].startswith(OURS)]
    for frame, after in zip(kept, [*kept[1:], None], strict=False):
        frame.tb_next = after
    return kept[0] if kept else None


class _Stack(StackSummary):
    """Frames with notes after them, and gaps that stand for several frames."""

    notes: dict[int, str]
    gaps: dict[int, str]

    def format_frame_summary(self, frame_summary: FrameSummary, **options: object) -> str:
        """`options` depend on the version of Python; 3.13 has one more than 3.11."""
        gap = self.gaps.get(id(frame_summary))
        if gap is not None:
            return gap
        text = super().format_frame_summary(frame_summary, **options)
        short = INSTALLED.sub("", frame_summary.filename)
        return text.replace(frame_summary.filename, short, 1) + self.notes.get(id(frame_summary), "")


def _condense(told: TracebackException, note: dict[int, str]) -> None:
    """Shorten the stack of an exception and of those it is chained to. `note` is by position in the outermost stack."""
    chain: list[tuple[TracebackException | None, dict[int, str]]] = [(told, note)]
    seen = 0
    while chain and seen < CHAINED:
        here, notes = chain.pop()
        if here is not None:
            seen += 1
            here.stack = _condense_stack(here.stack, notes)
            chain += [(one, {}) for one in (here.__cause__, here.__context__, *(here.exceptions or ()))]


def _condense_stack(stack: StackSummary, notes: dict[int, str]) -> _Stack:
    ours = [frame.filename.startswith(OURS) for frame in stack]
    users = [place for place, frame in enumerate(stack) if not ours[place] and not _library(frame.filename)]
    kept = set(users if len(users) <= FRAMES else users[: FRAMES // 2] + users[-FRAMES // 2 :])
    kept |= {len(stack) - 1, *notes}
    made, hidden = _Stack(), list[FrameSummary]()
    made.notes, made.gaps = {}, {}
    for place, frame in enumerate(stack):
        if place not in kept:
            if not ours[place]:
                hidden.append(frame)
            continue
        _close_gap(made, hidden)
        hidden = []
        made.append(frame)
        made.notes[id(frame)] = notes.get(place, "")
    return made


def _close_gap(made: _Stack, hidden: list[FrameSummary]) -> None:
    if not hidden:
        return
    where = list(dict.fromkeys(_library(frame.filename) or "your code" for frame in hidden))
    # Unlike any other frame, or the standard formatting would take two gaps for a repetition.
    gap = FrameSummary(f"<gap {id(hidden)}>", len(made), "", lookup_line=False, line="")
    made.append(gap)
    count = f"{len(hidden)} frame{'s' if len(hidden) > 1 else ''}"
    made.gaps[id(gap)] = f"  ... {count} in {', '.join(where[:4])}\n"


def _library(filename: str) -> str:
    """Return the name of the library a file belongs to; empty for the user's own code."""
    if filename.startswith("<"):
        return "Python" if filename.startswith(("<frozen", "<__array")) else ""
    installed = INSTALLED.sub("", filename)
    if installed != filename or not filename.startswith("/"):
        top = installed.partition("/")[0].removesuffix(".py")
        return top if installed != filename or top in sys.modules else ""
    return "the standard library" if filename.startswith(LIBRARY_FOLDER) else ""


def _notes(raised: BaseException, trace: TracebackType | None) -> tuple[dict[int, str], str]:
    """Return the values that the failing line used, by position of its frame, and a hint at what was meant."""
    found: TracebackType | None = None
    place = position = -1
    while trace is not None:
        position += 1
        if not _library(trace.tb_frame.f_code.co_filename):
            found, place = trace, position
        trace = trace.tb_next
    if found is None:
        return {}, ""
    try:
        used = _find_used_values(found)
        words = "   ".join(f"{name}: {describe_value(value)}" for name, value in used)
        hint = _suggest_columns(raised, used) or _replacement(raised)
        return ({place: f"    {words}\n"} if words else {}), hint
    except Exception:
        return {}, ""


def _find_used_values(trace: TracebackType) -> list[tuple[str, object]]:
    frame = trace.tb_frame
    found: list[tuple[str, object]] = []
    for name in dict.fromkeys(_NAME.findall(_STRING.sub("", _statement(trace)))):
        known, value = _look_up(frame, name)
        if known and is_data(value):
            found.append((name, value))
            if len(found) == NAMES:
                break
    return found


def _statement(trace: TracebackType) -> str:
    first, last = trace.tb_lineno, trace.tb_lineno
    for place, position in enumerate(trace.tb_frame.f_code.co_positions()):
        if place == trace.tb_lasti // 2:
            last = position[1] or first
            break
    lines = linecache.getlines(trace.tb_frame.f_code.co_filename)
    return "".join(lines[first - 1 : min(last, first + STATEMENT_LINES)])


def _look_up(frame: FrameType, name: str) -> tuple[bool, object]:
    # The names of a class body may be in a mapping of the program's own.
    is_safe = frame.f_code.co_flags & CO_OPTIMIZED or type(frame.f_locals) is dict
    if is_safe and name in frame.f_locals:
        return True, frame.f_locals[name]
    names: dict[str, object] = frame.f_globals
    if type(names) is dict and name in names:
        return True, names[name]
    return False, None


def _suggest_columns(raised: BaseException, used: list[tuple[str, object]]) -> str:
    """Name for each missing column those with a similar name, or else all columns."""
    keys = [key for key in _missing(raised) if len(key) <= COLUMN_CHARS][:MISSING]
    tables = [(name, columns) for name, value in used if keys and (columns := columns_of(value, CANDIDATES))]
    lines: list[str] = []
    for key in keys:
        lacking = [(name, columns) for name, columns in tables if key not in columns]
        close = [(name, near) for name, columns in lacking if (near := _near(key, columns))]
        if close:
            lines.append(f"{close[0][0]} has no column {key!r}; close: {close[0][1]}\n")
        elif type(raised) is not AttributeError:  # else no column was meant
            lines += [f"{name} has no column {key!r}; it has {_first(columns)}\n" for name, columns in lacking]
    return "".join(dict.fromkeys(lines))


def _replacement(raised: BaseException) -> str:
    said = raised.args[0] if raised.args else None
    if type(said) is not str or type(raised) not in {AttributeError, TypeError}:
        return ""
    return next((f"{hint}\n" for ending, hint in REPLACEMENTS.items() if said.endswith(ending)), "")


def _first(columns: list[str]) -> str:
    told = ", ".join(repr(column[:COLUMN_CHARS]) for column in columns[:NAMES])
    return f"{told}, ..." if len(columns) > NAMES else told


def _near(key: str, columns: list[str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(key, [column[:COLUMN_CHARS] for column in columns], n=3, cutoff=0.6)
    folded = [column for column in columns if column.strip().lower() == key.strip().lower()]
    return ", ".join(map(repr, list(dict.fromkeys([*folded, *close]))[:3]))


def _missing(raised: BaseException) -> list[str]:
    """Return the columns that an error of pandas or polars calls missing, in any of their wordings."""
    if type(raised) is AttributeError:
        return [raised.name] if type(raised.name) is str else []
    if not raised.args or (type(raised) is not KeyError and name_of(type(raised)) != "ColumnNotFoundError"):
        return []
    said: object = raised.args[0]
    several: Any = said
    if type(said) is str:
        listed = _LISTED.search(said) or _NOT_FOUND.match(said)
        names = [one or other for one, other in _ONE.findall(listed[1])] if listed else []
        return names or [listed[1] if listed else said]
    if type(said) is list or is_library_type(type(said)):  # an Index, or an array
        return [name for name in list(several[:MISSING]) if type(name) is str]
    return []


def missing_package(raised: BaseException | None) -> str:
    """Return the package of a module that an import did not find; empty if the error is another one."""
    for _ in range(CHAINED):
        if raised is None:
            break
        if isinstance(raised, ModuleNotFoundError):
            return package_of(raised.name)
        raised = raised.__cause__ or raised.__context__
    return ""
