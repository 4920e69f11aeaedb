"""What the extra `sql` brings, imported when a database is read and not before. None of it says its types."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def arrow() -> Any:
    return import_module("pyarrow")


def compute() -> Any:
    return import_module("pyarrow.compute")


def postgres_driver() -> Any:
    return import_module("adbc_driver_postgresql.dbapi")


def driver_error() -> type[Exception]:
    return import_module("adbc_driver_manager").Error


def duckdb() -> Any:
    return import_module("duckdb")
