"""The tool `fetch`, which reads a URL. The port `Web` decides which hosts it may reach."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Mapping
from contextlib import suppress

import anyio.to_thread
from msgspec.structs import replace

from pinfold.events import Json, Reach
from pinfold.tools.ports import Fetched, Web
from pinfold.tools.results import BadCall, Result
from pinfold.tools.tool import AnyTool, tool

FETCH_S = 30.0
GRACE_S = 5.0
MAX_BYTES = 2_000_000
_CHARSET = r"(?i)charset\s*=\s*[\"']?([\w.:-]{1,40})"
_HTML = rb"(?i)\s*(?:<!doctype html|<html)"
_TEXTUAL = r"text/|application/(?:.*\+)?(?:json|xml|yaml|x-yaml|toml|javascript|x-ndjson|csv|sql)\b"


def fetch_tool(web: Web, *, max_bytes: int = MAX_BYTES) -> AnyTool:
    async def fetch(url: str) -> Result:
        """Read a page or a file of the web as text.

        Args:
            url: A whole address, such as https://example.com/page
        """
        address = _whole(url)
        if not destination(address):
            raise BadCall(f"{url[:200]!r} is not a web address; write all of it, such as https://example.com/page")
        headers = {"Accept": "text/html, application/json, text/*;q=0.9, */*;q=0.5"}
        answer = await web.request("GET", address, headers=headers, body=None, timeout_s=FETCH_S, max_bytes=max_bytes)
        text, value = await anyio.to_thread.run_sync(read_body, answer, abandon_on_cancel=True)
        if not 200 <= answer.status < 300:
            raise BadCall(f"the server answered {answer.status}: {text[:500]}", sent=answer.sent)
        cut = ", and there was more" if answer.is_cut else ""
        head = f"[{answer.url} · {mime_of(answer)} · {len(answer.body):,} bytes{cut}; these are not the user's words]"
        return Result(text=f"{head}\n{text}", value=value, untrusted=True, sent=answer.sent)

    # Reading changes nothing on the server, but sends the URL: so not `pure`, and logged before it is sent.
    made = tool(
        effect="keyed",
        reach="network",
        trust="untrusted",
        timeout_s=FETCH_S + GRACE_S,
        parallel_safe=True,
        server="web",
    )(fetch)
    return replace(made, goes=reach_of)


def reach_of(args: Mapping[str, Json]) -> tuple[Reach, str]:
    return "network", destination(_whole(args.get("url")))


def _whole(url: Json) -> str:
    """Return the URL, with `https://` added if it has no scheme."""
    text = url.strip() if isinstance(url, str) else ""
    is_bare = "://" not in text and re.match(r"[\w-]+(\.[\w-]+)+(/|$|\?)", text)
    return f"https://{text}" if is_bare else text


def destination(url: str) -> str:
    """Return `host:port` that a URL connects to; empty if the URL is not valid."""
    from pinfold.net import BadDestination, read_url

    try:
        return str(read_url(url).destination)
    except BadDestination:
        return ""


def mime_of(answer: Fetched) -> str:
    return answer.mime.partition(";")[0].strip().lower()


def read_body(answer: Fetched) -> tuple[str, Json]:
    """Return the body as text for the model and as a value for code."""
    mime = mime_of(answer)
    if "json" in mime:
        with suppress(ValueError, RecursionError):
            parsed = json.loads(answer.body)
            return json.dumps(parsed, ensure_ascii=False, separators=(",", ":")), parsed
    if mime in ("text/html", "application/xhtml+xml") or (not mime and re.match(_HTML, answer.body[:200])):
        from pinfold.tools.builtin.readable import readable

        text = readable(decode_page(answer), answer.url) or "(a page without text)"
        return text, text
    if re.match(_TEXTUAL, mime) or (not mime and b"\0" not in answer.body[:1000]):
        text = decode_page(answer)
        return text, text
    told = f"[{mime or 'no content type'}, {len(answer.body):,} bytes: not text]"
    return told, told


def decode_page(answer: Fetched) -> str:
    declared = re.search(_CHARSET, answer.mime) or re.search(_CHARSET, answer.body[:2000].decode("latin-1"))
    name = declared[1] if declared else "utf-8"
    try:
        # Some codecs are not for plain text; `unicode_escape`, for one, would interpret escapes.
        is_text = codecs.lookup(name).name not in ("unicode-escape", "raw-unicode-escape", "idna", "punycode")
        return answer.body.decode(name if is_text else "utf-8", "replace")
    except (LookupError, ValueError):
        return answer.body.decode("utf-8", "replace")
