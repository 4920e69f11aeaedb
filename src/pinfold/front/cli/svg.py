"""Draws a wiring as one SVG: boxes in columns from left to right, in an order with few crossings. Needs nothing else."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from html import escape

import msgspec

from pinfold.app.diagnostics.system_map import Edge, Node, SystemMap
from pinfold.text import presentable_line

_LETTER = 7.3
"""Width of a letter of 12 pixels in a font whose letters are all as wide."""
_LINE = 16
_PAD = 10
_GAP_X, _GAP_Y = 110, 18
_MARGIN = 24
_CHARS = 34
"""Letters a line of a box may have."""
_ROWS = 6
_SWEEPS = 8
_COLOURS = {
    "person": "#e8eaf6",
    "engine": "#fff3e0",
    "model": "#e8f5e9",
    "place": "#f3f3f3",
    "sandbox": "#e3f2fd",
    "tools": "#fffde7",
    "server": "#fce4ec",
    "database": "#e0f2f1",
    "network": "#efebe9",
    "store": "#f5f5f5",
}
_FONTS = "ui-monospace, Menlo, Consolas, monospace"
_GROUND = '<rect width="100%" height="100%" fill="white"/>'
_ARROW = (
    '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" '
    'orient="auto"><path d="M0,0 L8,4 L0,8 z" fill="#777"/></marker></defs>'
)


class _Box(msgspec.Struct):
    node: Node
    rows: list[str]
    layer: int
    x: float = 0.0
    y: float = 0.0
    width: float = 0.0
    """That of its column."""

    @property
    def natural(self) -> float:
        return max(len(row) for row in self.rows) * _LETTER + 2 * _PAD

    @property
    def height(self) -> float:
        return len(self.rows) * _LINE + 2 * _PAD


def svg(found: SystemMap) -> str:
    layers = _layers(found)
    boxes = {node.id: _Box(node=node, rows=_rows(node), layer=layers[node.id]) for node in found.nodes}
    columns = _order_columns(found, layers)
    width, height = _place_boxes(boxes, columns, found.edges)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" font-family="{_FONTS}" font-size="12">'
    )
    lines = [head, "<title>How this installation is wired</title>", _GROUND, _ARROW]
    lines += [_edge(edge, boxes) for edge in found.edges]
    lines += [_label(edge, boxes) for edge in found.edges if edge.words]
    lines += [_box(box) for box in boxes.values()]
    return "\n".join([*lines, "</svg>"])


def _rows(node: Node) -> list[str]:
    """The title and the lines below it, wrapped; what does not fit is cut."""
    rows: list[str] = []
    for text in (node.title, *node.lines):
        rows += textwrap.wrap(presentable_line(text), _CHARS, break_on_hyphens=False) or [""]
    return rows if len(rows) <= _ROWS else [*rows[: _ROWS - 1], "..."]


def _layers(found: SystemMap) -> dict[str, int]:
    """Each as far right as the longest way to it, so that every line goes to the right."""
    layers = {node.id: 0 for node in found.nodes}
    for _ in found.nodes:  # no way is longer than that, also where lines go round in a circle
        moved = False
        for edge in found.edges:
            wanted = layers[edge.source] + 1
            if layers[edge.target] < wanted <= len(found.nodes):
                layers[edge.target] = wanted
                moved = True
        if not moved:
            break
    return layers


def _order_columns(found: SystemMap, layers: Mapping[str, int]) -> list[list[str]]:
    """Columns, each in the order of what its boxes are joined to: a few sweeps there and back."""
    columns: list[list[str]] = [[] for _ in range(max(layers.values(), default=0) + 1)]
    for node in found.nodes:
        columns[layers[node.id]].append(node.id)
    for sweep in range(_SWEEPS):
        forward = sweep % 2 == 0
        place = {id_: number for column in columns for number, id_ in enumerate(column)}
        for column in columns if forward else reversed(columns):
            column.sort(key=lambda id_: _middle(id_, found.edges, place, forward=forward))
            place.update({id_: number for number, id_ in enumerate(column)})
    return columns


def _middle(id_: str, edges: Sequence[Edge], place: Mapping[str, int], *, forward: bool) -> float:
    near = [
        place[edge.source if forward else edge.target]
        for edge in edges
        if (edge.target if forward else edge.source) == id_
    ]
    return sum(near) / len(near) if near else place[id_]


def _place_boxes(
    boxes: Mapping[str, _Box], columns: Sequence[Sequence[str]], edges: Sequence[Edge]
) -> tuple[float, float]:
    """Columns side by side, each box as near as can be to the height of what leads to it. How large it all is."""
    x = float(_MARGIN)
    for column in columns:
        widest = max(boxes[id_].natural for id_ in column)
        below = float(_MARGIN)
        for id_ in column:
            box = boxes[id_]
            box.x, box.width = x, widest
            before = [boxes[edge.source] for edge in edges if edge.target == id_]
            wanted = sum(one.y + one.height / 2 for one in before) / len(before) if before else 0.0
            box.y = max(below, wanted - box.height / 2)
            below = box.y + box.height + _GAP_Y
        x += widest + _GAP_X
    _centre_single_boxes(boxes, columns, edges)
    return x - _GAP_X + _MARGIN, max(box.y + box.height for box in boxes.values()) + _MARGIN


def _centre_single_boxes(boxes: Mapping[str, _Box], columns: Sequence[Sequence[str]], edges: Sequence[Edge]) -> None:
    """What stands alone in its column goes to the middle of what it leads to."""
    for column in reversed(columns):
        after = [boxes[edge.target] for edge in edges if edge.source == column[0]]
        if len(column) == 1 and after:
            box, top = boxes[column[0]], min(one.y for one in after)
            box.y = max(_MARGIN, (top + max(one.y + one.height for one in after) - box.height) / 2)


def _ends(edge: Edge, boxes: Mapping[str, _Box]) -> tuple[float, float, float, float]:
    source, target = boxes[edge.source], boxes[edge.target]
    return source.x + source.width, source.y + source.height / 2, target.x, target.y + target.height / 2


def _edge(edge: Edge, boxes: Mapping[str, _Box]) -> str:
    x1, y1, x2, y2 = _ends(edge, boxes)
    bend = _GAP_X * 0.55
    return (
        f'<path d="M{x1:.1f},{y1:.1f} C{x1 + bend:.1f},{y1:.1f} {x2 - bend:.1f},{y2:.1f} {x2:.1f},{y2:.1f}" '
        'fill="none" stroke="#999" marker-end="url(#end)"/>'
    )


def _label(edge: Edge, boxes: Mapping[str, _Box]) -> str:
    """Near its end, where lines from one box are apart."""
    _, _, x2, y2 = _ends(edge, boxes)
    words = escape(presentable_line(edge.words))
    return f'<text x="{x2 - 12:.1f}" y="{y2 - 5:.1f}" text-anchor="end" font-size="10" fill="#555">{words}</text>'


def _box(box: _Box) -> str:
    edge = '#b3261e" stroke-width="3' if box.node.faulty else "#666"
    frame = (
        f'<g><rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{box.height:.1f}" rx="6" '
        f'fill="{_COLOURS[box.node.kind]}" stroke="{edge}"/>'
    )
    lines = [frame]
    for number, row in enumerate(box.rows):
        weight = ' font-weight="bold"' if number == 0 else ""
        y = box.y + _PAD + _LINE * (number + 0.8)
        lines.append(f'<text x="{box.x + _PAD:.1f}" y="{y:.1f}"{weight}>{escape(row)}</text>')
    return "".join([*lines, "</g>"])
