"""Pictures that the terminal decodes itself: kitty's graphics protocol and iTerm2's inline images. Only ever base64."""

from __future__ import annotations

from base64 import b64encode

CHUNK = 4096
"""Of base64 in one sequence of kitty's."""


def kitty(png: bytes, columns: int, rows: int) -> str:
    """Sent and placed at once. `q=2`: an answer would be read as keys. `C=1`: the cursor stays."""
    data = b64encode(png).decode("ascii")
    pieces = [data[at : at + CHUNK] for at in range(0, len(data), CHUNK)]
    parts: list[str] = []
    for number, piece in enumerate(pieces):
        keys = f"a=T,f=100,q=2,C=1,c={columns},r={rows}," if number == 0 else ""
        parts.append(f"\x1b_G{keys}m={int(number < len(pieces) - 1)};{piece}\x1b\\")
    return "".join(parts)


def iterm(data: bytes, columns: int, rows: int) -> str:
    keys = f"size={len(data)};width={columns};height={rows};preserveAspectRatio=1;inline=1"
    return f"\x1b]1337;File={keys}:{b64encode(data).decode('ascii')}\x07"


INDENT = 4


def place_on_rows(drawing: str, rows: int) -> str:
    """On rows of its own, whatever the terminal does to the cursor; it ends where the next row begins."""
    room = "\n" * rows
    return f"{room}\x1b[{rows}A\r\x1b[{INDENT}C\x1b7{drawing}\x1b8\x1b[{rows}B\r"
