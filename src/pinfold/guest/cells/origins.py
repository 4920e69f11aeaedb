"""Which cell bound a name last. Looks at names and code only, never at what they hold."""

from __future__ import annotations

from opcode import opmap

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from types import CodeType

STORES = bytes((opmap["STORE_NAME"], opmap["STORE_GLOBAL"]))
EXTENDED = opmap["EXTENDED_ARG"]


PENDING = 32
"""Cells whose code is kept to be read later."""


class Origins:
    """Most cells only leave their code here; it is read when somebody asks, or a name is new, or a cell failed."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self._namespace = namespace
        self._cells: dict[str, int] = dict.fromkeys(namespace, 0)
        self._length = len(namespace)
        self._pending: list[tuple[int, CodeType]] = []
        self._code: CodeType | None = None
        self._before: list[int] = []

    def begin(self, code: CodeType) -> None:
        # Numbers of objects, not objects: the cell must be able to free what it rebinds.
        self._before = list(map(id, map(self._namespace.get, code.co_names)))
        self._code = code  # last: an interrupt may come here, and the two must belong together

    def end(self, cell: int, *, failed: bool) -> None:
        """A cell that failed counts for what it got to; any other for every name its code binds."""
        code, self._code = self._code, None
        if failed:
            self._read_pending()
            if code is not None:
                self._credit_changed(cell, code)
            self._credit_new(cell)
            return
        if code is not None:
            self._pending.append((cell, code))
        if len(self._namespace) != self._length or len(self._pending) > PENDING:
            self._read_pending()
            self._credit_new(cell)

    @property
    def cells(self) -> dict[str, int]:
        """By name, of what is there now."""
        self._read_pending()
        return {name: cell for name, cell in self._cells.items() if cell and name in self._namespace}

    def adopt(self, cells: dict[str, int]) -> None:
        """What is there now was bound by these, in another process."""
        self._cells = {**dict.fromkeys(self._namespace, 0), **cells}
        self._length = len(self._namespace)

    def cell_of(self, name: str) -> int | None:
        self._read_pending()
        return self._cells.get(name) or None

    def _read_pending(self) -> None:
        for cell, code in self._pending:
            for name in find_bound_names(code):
                self._cells[name] = cell
        self._pending = []

    def _credit_changed(self, cell: int, code: CodeType) -> None:
        before = dict(zip(code.co_names, self._before, strict=True))
        for name in find_bound_names(code):
            if id(self._namespace.get(name)) != before[name]:
                self._cells[name] = cell

    def _credit_new(self, cell: int) -> None:
        """Names bound otherwise, by `global`, `import *` or `globals()`: new ones are the last of a dictionary."""
        self._length = len(self._namespace)
        try:
            for name in reversed(self._namespace):
                if type(name) is not str or name in self._cells:
                    break
                self._cells[name] = cell
        except RuntimeError:  # a thread of the program's binds names meanwhile; the next cell finds them
            return


def find_bound_names(code: CodeType) -> list[str]:
    """The names a cell's own code binds, in any branch of it."""
    instructions, names = code.co_code, code.co_names
    operations = instructions[::2]
    found: list[str] = []
    for operation in STORES:
        place = operations.find(operation)
        while place >= 0:
            argument, shift, before = instructions[2 * place + 1], 8, place - 1
            while before >= 0 and operations[before] == EXTENDED:
                argument |= instructions[2 * before + 1] << shift
                shift, before = shift + 8, before - 1
            found.append(names[argument])
            place = operations.find(operation, place + 1)
    return found
