"""What differs between two texts, as a unified diff of bounded size and effort."""

from __future__ import annotations

LINES = 3000
"""Differing lines of either text that are compared one by one."""
CONTEXT = 3
SHOWN = 20_000
"""Characters of a diff that are told."""
WHOLE = 1 << 20
"""For who has to agree to it: by then the host has refused it."""


def diff(before: str, after: str, old: str, new: str, most: int = SHOWN) -> str:
    """Empty for two that are the same. A last line without its end is marked as git does."""
    if before == after:
        return ""
    text = "".join(_mark_missing_newline(line) for line in _format_unified(lines_of(before), lines_of(after), old, new))
    if len(text) <= most:
        return text
    return f"{text[:most]}\n[... {len(text) - most:,} more characters of this diff]\n"


def count_changes(before: str, after: str) -> tuple[int, int]:
    """Lines added and removed; of texts too different to compare, all that differ."""
    a, b = lines_of(before), lines_of(after)
    head, tail = _count_same(a, b)
    a, b = a[head : len(a) - tail], b[head : len(b) - tail]
    if max(len(a), len(b)) > LINES:
        return len(b), len(a)
    from difflib import SequenceMatcher

    kept = sum(block.size for block in SequenceMatcher(None, a, b).get_matching_blocks())
    return len(b) - kept, len(a) - kept


def lines_of(text: str) -> list[str]:
    """With their ends; a line ends at a newline and nowhere else."""
    lines = text.split("\n")
    last = lines.pop()
    return [f"{line}\n" for line in lines] + ([last] if last else [])


def _count_same(a: list[str], b: list[str]) -> tuple[int, int]:
    """Lines that are the same at the beginning and at the end."""
    most = min(len(a), len(b))
    head = next((number for number in range(most) if a[number] != b[number]), most)
    rest = most - head
    tail = next((number for number in range(rest) if a[-1 - number] != b[-1 - number]), rest)
    return head, tail


def _format_unified(a: list[str], b: list[str], old: str, new: str) -> list[str]:
    head, tail = _count_same(a, b)
    first = max(0, head - CONTEXT)
    last_a, last_b = len(a) - max(0, tail - CONTEXT), len(b) - max(0, tail - CONTEXT)
    part_a, part_b = a[first:last_a], b[first:last_b]
    if max(len(part_a), len(part_b)) > LINES:
        return [
            f"--- {old}\n+++ {new}\n",
            f"@@ -{first + 1},{len(part_a)} +{first + 1},{len(part_b)} @@\n",
            f"[{len(part_a):,} lines give way to {len(part_b):,}: too many to compare]\n",
        ]
    from difflib import SequenceMatcher

    lines = [f"--- {old}\n", f"+++ {new}\n"]
    for group in SequenceMatcher(None, part_a, part_b).get_grouped_opcodes(CONTEXT):
        (_, a1, _, b1, _), (_, _, a2, _, b2) = group[0], group[-1]
        lines.append(f"@@ -{_span(first + a1, a2 - a1)} +{_span(first + b1, b2 - b1)} @@\n")
        for tag, i1, i2, j1, j2 in group:
            if tag == "equal":
                lines += (f" {line}" for line in part_a[i1:i2])
                continue
            lines += (f"-{line}" for line in part_a[i1:i2])
            lines += (f"+{line}" for line in part_b[j1:j2])
    return lines


def _span(start: int, length: int) -> str:
    """Counted from 1; of nothing, the line before it."""
    begin = start + (length > 0)
    return f"{begin}" if length == 1 else f"{begin},{length}"


def _mark_missing_newline(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"
