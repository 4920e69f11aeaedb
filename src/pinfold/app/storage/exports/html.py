"""A session as one HTML file without scripts. It loads nothing, and no content of others runs in it."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib.resources import files
from typing import assert_never

from pinfold.app.storage.exports import transcript
from pinfold.app.storage.exports.md import frame_html, heading, highlight_code, inline_html, render_markdown
from pinfold.app.storage.exports.transcript import PICTURES, best_of, display_label, show_forms
from pinfold.text import cap_text, first_line, printable

LONG = 30
"""Longer output, in lines, is folded."""
_HEAD = 12
"""Lines of folded output that stay visible."""
_SHOWN = 200_000
_FILES = 50
_INDEXED = 4
"""From this many prompts on, an index is shown at the top."""


def to_html(story: transcript.Transcript) -> bytes:
    return _page(story.title, "\n".join(_body(story)))


def display_page(shown: transcript.ShownDisplay) -> bytes:
    """Return a page with one display, for a browser."""
    body = f'<section class="cell"><div class="out rich">{_render_display(shown)}</div></section>'
    return _page(display_label(shown.number, shown.forms), body)


def answer_html(text: str, displays: Iterable[Mapping[str, bytes]]) -> str:
    """Return an answer and its displays for a foreign page. No frames: its policy would not stop them from loading."""
    shown = (_render_display(show_forms(number, forms), frames=False) for number, forms in enumerate(displays, 1))
    return "\n".join(f"<div>{part}</div>" for part in (render_markdown(text), *shown))


def _page(title: str, body: str) -> bytes:
    style = files("pinfold.app.storage.exports").joinpath("page.css").read_text("utf-8")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    # Allow embedded pictures and our own style. A frame inherits the policy, but its content has other styles.
    allowed = "'unsafe-inline'" if "<iframe " in body else f"'sha256-{digest}'"
    policy = f"default-src 'none'; img-src data:; style-src {allowed}; base-uri 'none'; form-action 'none'"
    page = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="generator" content="Pinfold">
<title>{escape(title)}</title>
<style>{style}</style>
</head>
<body>
{body}
</body>
</html>
"""
    return page.encode("utf-8", "replace")


def _body(story: transcript.Transcript) -> Iterator[str]:
    yield f'<header><h1 class="title">{escape(story.title)}</h1><ul class="facts">'
    kept = len(story.path)
    facts = {
        "model": ", ".join(story.models),
        "began": story.began[:16].replace("T", " "),
        "cells": f"{kept:,}" if kept == len(story.cells) else f"{kept:,} of {len(story.cells):,}",
        "folder": story.workspace,
        "session": story.session,
    }
    for name, fact in facts.items():
        if fact:
            yield f"<li><b>{name}</b>{escape(fact)}</li>"
    yield "</ul></header>"
    yield from _index(story)
    prompts = 0
    yield "<main>"
    for item in story.items:
        if isinstance(item, transcript.Prompt):
            prompts += 1
        yield from _item(item, prompts)
    yield "</main>"
    yield "<footer>Exported from a Pinfold session. Pictures are inside this file; it loads nothing and runs nothing.</footer>"


def _index(story: transcript.Transcript) -> Iterator[str]:
    prompts = [item.text for item in story.items if isinstance(item, transcript.Prompt)]
    if len(prompts) < _INDEXED:
        return
    yield "<nav><details><summary>Prompts</summary><ol>"
    for number, text in enumerate(prompts, 1):
        yield f'<li><a href="#prompt-{number}">{escape(first_line(text, 90))}</a></li>'
    yield "</ol></details></nav>"


def _item(item: transcript.Item, prompts: int) -> Iterator[str]:
    match item:
        case transcript.Prompt(text=text, images=images):
            yield f'<section class="prompt" id="prompt-{prompts}"><span class="label">You</span>'
            yield f'<p class="said">{escape(text.strip())}</p>'
            yield from (_picture(one, "picture") for one in images)
            yield "</section>"
        case transcript.Answer(text=text):
            yield f'<section class="prose">{render_markdown(text)}</section>'
        case transcript.Cell() as cell:
            yield from _cell(cell)
        case transcript.Step() as step:
            yield from _step(step)
        case transcript.Note(label=label, text=text):
            bad = " failed" if label == "failed" else ""
            yield f'<p class="note{bad}">{escape(label)}: {escape(text.strip())}</p>'
        case _:
            assert_never(item)


def _cell(cell: transcript.Cell) -> Iterator[str]:
    took = f"{cell.took_s:.2f} s" if cell.outcome and cell.standing == "kept" else ""
    label = f"<span>{escape(heading(cell))}</span><span>{took}</span>"
    code = f'<pre class="code"><code>{highlight_code(printable(cell.code.strip(chr(10))))}</code></pre>'
    if cell.standing != "kept":
        yield f'<details class="cell undone"><summary>{label}</summary>{code}'
        if cell.why:
            yield _block(cell.why)
        yield from _outputs(cell)
        yield "</details>"
        return
    yield f'<section class="cell"><div class="label">{label}</div>{code}'
    yield from _outputs(cell)
    yield "</section>"


def _outputs(cell: transcript.Cell) -> Iterator[str]:
    if cell.stdout:
        yield _block(cell.stdout)
    if cell.stderr:
        yield _block(cell.stderr, kind="err", label="stderr")
    for step in cell.calls:
        yield (
            f'<div class="out"><details class="fold"><summary>called {escape(step.tool)}: {escape(step.how)}</summary>'
            f"<pre>{escape(cap_text(step.args, _SHOWN))}</pre><pre>{escape(cap_text(step.text, _SHOWN))}</pre></details></div>"
        )
    for shown in cell.displays:
        yield f'<div class="out rich">{_render_display(shown)}</div>'
    if cell.result is not None:
        yield f'<div class="out rich">{_render_display(cell.result)}</div>'
    elif cell.value is not None:
        yield _block(cell.value)
    if cell.error is not None:
        yield _block(cell.error, kind="bad")
    for notice in cell.notices:
        yield _block(notice, kind="err")
    yield from _files(cell.files)


def _files(files: tuple[str, ...]) -> Iterator[str]:
    if files:
        yield f'<div class="out err"><span class="label">files</span><pre>{escape(chr(10).join(files[:_FILES]))}</pre></div>'


def _step(step: transcript.Step) -> Iterator[str]:
    how = f"{step.how}, undone" if step.standing == "undone" else step.how
    label = (
        f"<span>{escape(step.tool)} {escape(step.about or first_line(step.args, 70))}</span><span>{escape(how)}</span>"
    )
    yield f'<details class="cell step"><summary>{label}</summary>'
    yield f'<pre class="code"><code>{highlight_code(cap_text(step.args, _SHOWN), "json")}</code></pre>'
    if step.text.strip():
        yield f'<div class="out"><pre>{escape(cap_text(step.text.rstrip(), _SHOWN))}</pre></div>'
    yield from _files(step.files)
    yield "</details>"


def _block(text: str, *, kind: str = "", label: str = "") -> str:
    lines = cap_text(text.rstrip("\n"), _SHOWN).split("\n")
    inside = f"<pre>{escape(chr(10).join(lines if len(lines) <= LONG else lines[:_HEAD]))}</pre>"
    if len(lines) > LONG:
        rest = escape("\n".join(lines[_HEAD:]))
        summary = f"{len(lines) - _HEAD:,} more lines"
        inside += f'<details class="fold"><summary>{summary}</summary><pre>{rest}</pre></details>'
    named = f'<span class="label">{label}</span>' if label else ""
    return f'<div class="out {kind}">{named}{inside}</div>'


def _render_display(shown: transcript.ShownDisplay, *, frames: bool = True) -> str:
    best = best_of(shown.forms)
    words = display_label(shown.number, shown.forms)
    if best is None:
        return f'<span class="label">{escape(words)}</span>'
    form = shown.forms[best]
    if best in PICTURES:
        return _picture(form, f"display {shown.number}")
    if best == "text/markdown":
        return f'<div class="prose">{render_markdown(form.text)}</div>'
    if best == "text/html" and (inside := inline_html(form.text) or (frame_html(form.text) if frames else None)):
        return inside
    plain = shown.forms.get("text/plain", form)
    said = plain.text if plain.mime.startswith("text/") or "json" in plain.mime else ""
    return f'<span class="label">{escape(words)}</span><pre>{escape(cap_text(said, _SHOWN))}</pre>'


def _picture(form: transcript.Form, words: str) -> str:
    """Embed a picture with `<img>`, where even an SVG with a script runs and loads nothing."""
    if form.mime not in PICTURES:
        return f'<span class="label">{escape(words)}: {escape(form.mime)}</span>'
    return f'<img alt="{escape(words)}" src="data:{form.mime};base64,{base64.b64encode(form.data).decode()}">'
