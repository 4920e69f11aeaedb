"""What the servers share: the effect of a method, and records that are found, paged and cut."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from pinfold.tools import BadCall

Method = TypeVar("Method", bound=Callable[..., Any])
Record = dict[str, Any]
EFFECT = "__pinfold_effect__"


def reads(method: Method) -> Method:
    setattr(method, EFFECT, "pure")
    return method


def changes(method: Method) -> Method:
    setattr(method, EFFECT, "once")
    return method


def find_one(records: Iterable[Record], key: str, value: object, what: str) -> Record:
    for record in records:
        if record[key] == value:
            return record
    raise BadCall(f"there is no {what} with {key} {value!r}")


def page_of(records: Sequence[Record], page: int, per_page: int, key: str) -> Record:
    first = (page - 1) * per_page
    return {
        key: list(records[first : first + per_page]),
        "page": page,
        "per_page": per_page,
        "total_count": len(records),
        "has_more": first + per_page < len(records),
    }


def without(record: Mapping[str, Any], *names: str) -> Record:
    return {key: value for key, value in record.items() if key not in names}
