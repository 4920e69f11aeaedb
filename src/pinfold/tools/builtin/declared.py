"""What the model is told of the tools for files and tables. Given as they are: asking pydantic costs 0.1 s."""

from __future__ import annotations

from collections.abc import Mapping

from pinfold.events import Json

DESCRIPTIONS: Mapping[str, str] = {
    "list_files": "List a folder: folders end in a slash, files have their size in bytes.",
    "list_directory": 'List a folder: {"entries": [{"name", "type", "size"}]}.',
    "read_file": "Read a text file.",
    "write_file": "Write a whole file in UTF-8, new or in place of the old one. To change a part, use edit_file.",
    "edit_file": "Replace exact text in a file.",
    "apply_patch": (
        "Apply a unified diff (git's too), or a patch between *** Begin Patch and *** End Patch, to any number of files: "
        "all of it or nothing."
    ),
    "glob": "Find files and folders by name: `**/*.py`, `src/*.{ts,tsx}`. Hidden ones only if the pattern names them.",
    "grep": "Find lines by a regular expression, as `path:line:text`; or only the files, or the count in each.",
    "data_view": (
        "Look at a table of any size (CSV, Parquet, JSON, Excel): first rows, shape, columns with nulls and examples, "
        "or exact statistics as of pandas' describe. A sheet of a workbook is FILE#SHEET."
    ),
}


def _object(required: tuple[str, ...], **properties: Mapping[str, Json]) -> Mapping[str, Json]:
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


_PATH: Mapping[str, Json] = {"type": "string"}
_HERE: Mapping[str, Json] = {"type": "string", "default": "."}

PARAMETERS: Mapping[str, Mapping[str, Json]] = {
    "list_files": _object((), path=_HERE),
    "list_directory": _object((), path=_HERE),
    "read_file": _object(
        ("path",),
        path=_PATH,
        start_line={"type": "integer", "default": 1},
        max_lines={"anyOf": [{"type": "integer"}, {"type": "null"}], "default": None},
    ),
    "write_file": _object(
        ("path", "content"), path=_PATH, content={"type": "string"}, create_dirs={"type": "boolean", "default": True}
    ),
    "edit_file": _object(
        ("path", "old", "new"),
        path=_PATH,
        old={"type": "string"},
        new={"type": "string"},
        expected_matches={"type": "integer", "default": 1},
    ),
    "apply_patch": _object(("patch",), patch={"type": "string"}),
    "glob": _object(("pattern",), pattern={"type": "string"}, path=_HERE),
    "grep": _object(
        ("pattern",),
        pattern={"type": "string", "description": "a regular expression"},
        path=_HERE,
        output_mode={"type": "string", "enum": ["lines", "files", "count"], "default": "lines"},
    ),
    "data_view": _object(
        ("path",),
        path=_PATH,
        view={"type": "string", "enum": ["peek", "shape", "columns", "stats"], "default": "peek"},
        rows={"type": "integer", "default": 5, "description": "of a peek"},
    ),
}

UNTOLD: Mapping[str, tuple[str, ...]] = {
    "read_file": ("max_lines", "start_line.default"),
    "edit_file": ("expected_matches",),
}
"""Of the tools that the model is told in full."""
