"""Pixels, and why there are none."""

from __future__ import annotations

from msgspec import Struct


class BadPicture(Exception):
    """Why a picture cannot be drawn, in words for the user."""


class Raster(Struct, frozen=True):
    width: int
    height: int
    rows: tuple[bytes, ...]
    """Red, green, blue of each pixel."""
