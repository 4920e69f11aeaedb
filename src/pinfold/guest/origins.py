"""Which cell bound a name last. Looks at names and code only, never at what they hold."""

from __future__ import annotations

from opcode import opmap

TYPE_CHECKING = False  # importing `typing` for it would cost a quarter of our start
if TYPE_CHECKING:
    from types import CodeType

STORES = bytes((opmap["STORE_NAME"], opmap["STORE_GLOBAL"]))
EXTENDED = opmap["EXTENDED_ARG"]


class Origins:
    """`begin` before the code runs, `end` when there is time: only the first is on the way to the reply."""

    def __init__(self, namespace: dict[str, object]) -> None:
        self._namespace = namespace
        self._cells: dict[str, int] = dict.fromkeys(namespace, 0)
        self._code: CodeType | None = None
        self._before: list[int] = []

    def begin(self, code: CodeType) -> None:
        self._code = code
        # Numbers of objects, not objects: the cell must be able to free what it rebinds.
        self._before = list(map(id, map(self._namespace.get, code.co_names)))

    def end(self, cell: int, *, failed: bool) -> None:
        """A cell that failed counts for what it got to; any other for every name its code binds."""
        namespace, cells, code = self._namespace, self._cells, self._code
        if code is not None:
            before = dict(zip(code.co_names, self._before, strict=True))
            for name in stored(code):
                if not failed or id(namespace.get(name)) != before[name]:
                    cells[name] = cell
        # Bound otherwise, by `global`, `import *` or `globals()`: new names are the last of a dictionary.
        try:
            for name in reversed(namespace):
                if type(name) is not str or name in cells:
                    break
                cells[name] = cell
        except RuntimeError:  # a thread of the program's binds names meanwhile; the next cell finds them
            pass
        self._code, self._before = None, []

    def cell_of(self, name: str) -> int | None:
        return self._cells.get(name) or None


def stored(code: CodeType) -> list[str]:
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
