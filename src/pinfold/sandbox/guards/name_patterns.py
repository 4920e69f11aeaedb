"""Many patterns of file names as one test, cheap enough to be asked for every name of a workspace."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence


class NamePatterns:
    """Each pattern is matched with the last parts of a path, at any depth; `*` stays within one part."""

    def __init__(self, patterns: Sequence[str], *, any_case: bool = False) -> None:
        lasts = {pattern.lower().rpartition("/")[2] for pattern in patterns}
        self.exact = frozenset(last for last in lasts if "*" not in last)
        self.endings = frozenset(last[last.rfind(".") :] for last in lasts if last.startswith("*"))
        starts = {last.partition("*")[0] for last in lasts if "*" in last} - {""}
        self.length = min(map(len, starts), default=0)
        self.starts = frozenset(start[: self.length] for start in starts)
        self._patterns = patterns
        self._flags = re.DOTALL | (re.IGNORECASE if any_case else 0)

    def may_end(self, name: str) -> bool:
        """False if no path that ends with this name is matched by all of a pattern."""
        name = name.lower()
        return name in self.exact or name[name.rfind(".") :] in self.endings or name[: self.length] in self.starts

    def find(self, path: str) -> Iterator[tuple[int, str]]:
        """Each part of the path, from its beginning, that ends as a pattern says, with the number of that pattern."""
        end = 0
        for name in path.split("/"):
            end += len(name) + 1
            if self.may_end(name) and (found := self._match_end(path[: end - 1])):
                yield (found.lastindex or 1) - 1, found[0]

    @functools.cached_property
    def _match_end(self) -> Callable[[str], re.Match[str] | None]:
        each = "|".join(f"({re.escape(pattern)})" for pattern in self._patterns).replace(r"\*", "[^/]*")
        return re.compile(rf"(?:.*?/)??(?:{each or '(?!)'})", self._flags).fullmatch
