"""From a request to what is told of it: the statement is read, run and put together. Runs in the worker."""

from __future__ import annotations

import os
from typing import Any

from pinfold.tools.sql.bounds import Bounds, mark_truncated
from pinfold.tools.sql.engines import Engine
from pinfold.tools.sql.libraries import arrow
from pinfold.tools.sql.messages import Told
from pinfold.tools.sql.parameters import bind_params
from pinfold.tools.sql.preview import preview
from pinfold.tools.sql.sources import Source
from pinfold.tools.sql.statements import read_statement


def run_request(engine: Engine, source: Source, sql: str | None, params: Any, shelf: int) -> Told:
    """Raises Refused, DatabaseFault."""
    if sql is None:
        from pinfold.tools.sql.inventory import inventory

        return Told(value=inventory(engine, source))
    is_bound = source.kind == "postgresql"
    statement = read_statement(bind_params(sql, params) if is_bound else sql, source.kind)
    bounds = Bounds(source.max_rows, source.max_bytes)
    found = engine.query(statement, bounds, None if is_bound else params)
    table = mark_truncated(found)
    size = _put(table, shelf)
    return Told(text=preview(table, found.cut), bytes=size, came=table.nbytes)


def _put(table: Any, shelf: int) -> int:
    pa = arrow()
    os.ftruncate(shelf, 0)
    os.lseek(shelf, 0, os.SEEK_SET)
    with os.fdopen(os.dup(shelf), "wb") as file:
        with pa.ipc.new_stream(file, table.schema) as writer:
            writer.write_table(table)
        file.flush()
        return file.tell()
