"""Some lines of a text that is kept on the host, told as `read_file` tells those of a file."""

from __future__ import annotations

from pinfold.tools.errors import BadCall


def page(data: bytes, name: str, first: int, most_lines: int | None, most: int) -> str:
    """At most `most` characters of it. Raises BadCall where there is no such line."""
    lines = data.decode("utf-8", "replace").splitlines(keepends=True)
    if first > max(1, len(lines)):
        raise BadCall(f"{name} has {len(lines):,} lines; start_line={first} is past the end")
    shown: list[str] = []
    room = most
    for line in lines[first - 1 :][:most_lines]:
        if len(line) > room:
            break
        shown.append(line)
        room -= len(line)
    last = first + len(shown) - 1
    if not shown and lines:
        return f"{lines[first - 1][:most]}\n[line {first:,} of {len(lines):,}, cut; go on with start_line={first + 1}]"
    text = "".join(shown)
    if last >= len(lines) and first == 1:
        return text
    more = f"; go on with start_line={last + 1}" if last < len(lines) else ""
    return f"{text.removesuffix(chr(10))}\n[lines {first:,} to {last:,} of {len(lines):,}{more}]"
