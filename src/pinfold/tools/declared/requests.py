"""HTTP requests as tools: the file fixes the host, values are encoded for their place, secrets go in headers only."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, cast
from urllib.parse import quote, urlencode

import anyio.to_thread
from msgspec import Meta, Struct
from msgspec.structs import replace

from pinfold.events import Json
from pinfold.tools.builtin.web import destination, mime_of, read_body
from pinfold.tools.declared.parameters import Parameter, check_values
from pinfold.tools.declared.tables import Plain, Template, fault, template
from pinfold.tools.ports import Fetched, Ports
from pinfold.tools.results import BadCall, Result

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
MAX_BYTES = 2_000_000
MOST_BYTES = 50_000_000
MOST_S = 600.0
_URL = re.compile(r"(?P<scheme>https?)://(?P<host>[^/?#\s]+)(?P<path>[^?#\s]*)(?:\?(?P<query>[^#\s]*))?(?:#\S*)?")
_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_OURS = frozenset({"host", "content-length", "transfer-encoding", "connection", "upgrade", "te", "trailer"})
_LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LEFT_OUT: Any = object()
_WORDS = 500
"""Maximum characters shown of an error response."""


class HttpFile(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request, as written in the file."""

    url: str
    method: str = ""
    headers: dict[str, Plain] = {}
    query: dict[str, Plain] = {}
    body: Json = None
    form: dict[str, Plain] | None = None
    timeout_s: Annotated[float, Meta(gt=0, le=MOST_S)] | None = None
    max_bytes: Annotated[int, Meta(gt=0, le=MOST_BYTES)] = MAX_BYTES
    select: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """A request as templates, to be filled with the arguments of a call."""

    method: str
    origin: str
    path: Template
    inline: Template
    """The query in the URL itself."""
    query: Mapping[str, Template]
    headers: Mapping[str, Template]
    body: Json
    form: Mapping[str, Template] | None
    timeout_s: float
    http: HttpFile

    @property
    def to(self) -> str:
        return destination(self.origin)

    def used_parameters(self) -> set[str]:
        templates = [self.path, self.inline, *self.query.values(), *self.headers.values(), *(self.form or {}).values()]
        _map_leaves(self.body, lambda leaf, _: templates.append(leaf) if isinstance(leaf, Template) else None)
        return {name for one in templates for name in one.holes}


def request_of(
    http: HttpFile, source: str, parameters: Mapping[str, Parameter], ports: Ports, timeout_s: float
) -> tuple[Callable[..., Awaitable[Result]], Outline]:
    outline = _outline(http, source, parameters, timeout_s)
    host = outline.to.rpartition(":")[0]

    async def run(**values: object) -> Result:
        if ports.web is None:
            raise BadCall("no other machine can be reached in this session")
        check_values(parameters, values)
        url = _url(outline, values)
        headers, body = _body(outline, values)
        secrets = _secrets(outline, ports, host)
        for name, one in outline.headers.items():
            if one.lacks(values):
                continue
            headers[name] = one.fill(values, secrets=secrets)
            if not (headers[name].isascii() and headers[name].isprintable()):
                raise BadCall(f"the header {name} may hold plain characters only")
        try:
            fetched = await ports.web.request(
                outline.method, url, headers=headers, body=body, timeout_s=outline.timeout_s, max_bytes=http.max_bytes
            )
        except BadCall as error:
            raise BadCall(
                _without(str(error), secrets), may_have_happened=error.may_have_happened, sent=error.sent
            ) from None
        except Exception as error:  # noqa: BLE001 - its words may hold what must not be told
            raise BadCall(f"the request failed: {type(error).__name__}") from None
        # Latin-1 maps each byte to one character, so that a body that is not text stays unchanged.
        body = _without(fetched.body.decode("latin-1"), secrets).encode("latin-1") if secrets else fetched.body
        url, mime = _without(fetched.url, secrets), _without(fetched.mime, secrets)
        cleaned = replace(fetched, url=url, mime=mime, body=body)
        # In a thread, since converting a page to text may take a while.
        return await anyio.to_thread.run_sync(_response_result, cleaned, outline, abandon_on_cancel=True)

    return run, outline


def _outline(http: HttpFile, source: str, parameters: Mapping[str, Parameter], timeout_s: float) -> Outline:
    known, parts = set(parameters), _URL.fullmatch(http.url)
    if parts is None:
        words = f"should be a full address such as https://api.example.com/items/{{id}}, not {http.url[:80]!r}"
        fault(source, "http.url", words)
    if re.search(r"[{}$@]", parts["host"]) or not destination(f"{parts['scheme']}://{parts['host']}"):
        words = f"the host {parts['host']!r} must be written out, without parameters, user names or passwords"
        fault(source, "http.url", words)
    contents = [name for name in ("body", "form") if getattr(http, name) is not None]
    method = http.method.upper() or ("POST" if contents else "GET")
    if method not in METHODS:
        fault(source, "http.method", f"should be one of {', '.join(METHODS)}, not {method!r}")
    if contents and method in ("GET", "HEAD"):
        fault(source, f"http.{contents[0]}", f"{method} requests have none; use POST, or `query`")
    if len(contents) > 1:
        fault(source, "http.form", "there is a `body` too; keep one of them")
    path = template(source, "http.url", parts["path"], known)
    for name in path.holes:
        if parameters[name].kind in ("array", "object"):
            fault(source, "http.url", f"{name!r} is a list or an object; put it into `query` or `body`")

    def read(key: str, texts: Mapping[str, Plain]) -> dict[str, Template]:
        return {
            name: template(source, f"http.{key}.{name}", str(text), known, secrets=key == "headers")
            for name, text in texts.items()
        }

    outline = Outline(
        method=method,
        origin=f"{parts['scheme']}://{parts['host']}",
        path=path,
        inline=template(source, "http.url", parts["query"] or "", known),
        query=read("query", http.query),
        headers=read("headers", http.headers),
        body=_read_body(http.body, source, known),
        form=None if http.form is None else read("form", http.form),
        timeout_s=http.timeout_s or timeout_s,
        http=http,
    )
    is_safe = parts["scheme"] == "https" or parts["host"].partition(":")[0] in _LOOPBACK
    for name, one in outline.headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _OURS:
            fault(source, f"http.headers.{name}", "this header cannot be set; leave it out")
        if one.secrets and not is_safe:
            fault(source, f"http.headers.{name}", "a secret goes over https only; change the url")
    return outline


def _map_leaves(tree: Json, leaf: Callable[[Json, str], Json], key: str = "http.body") -> Json:
    """Copy a JSON tree with each leaf replaced by `leaf(value, path)`. A leaf that becomes _LEFT_OUT is dropped."""
    match tree:
        case dict():
            items = cast("dict[Json, Json]", tree).items()
            pairs = {str(name): _map_leaves(value, leaf, f"{key}.{name}") for name, value in items}
            return {name: value for name, value in pairs.items() if value is not _LEFT_OUT}
        case list():
            values = enumerate(cast("list[Json]", tree))
            found = [_map_leaves(value, leaf, f"{key}.{number}") for number, value in values]
            return [value for value in found if value is not _LEFT_OUT]
        case _:
            return leaf(tree, key)


def _read_body(body: Json, source: str, known: set[str]) -> Json:
    """Return the body with each text parsed as a template."""

    def read(value: Json, key: str) -> Json:
        if not isinstance(value, str):
            return value
        if value is body and value.lstrip()[:1] in ("{", "[") and not re.fullmatch(r"\{\w+\}", value.strip()):
            fault(source, key, "write JSON as YAML keys and values: they are sent as JSON, and values stay values")
        return template(source, key, value, known)

    return _map_leaves(body, read)


def _url(outline: Outline, values: Mapping[str, Json]) -> str:
    def word(_: str, text: str) -> str:
        return quote(text, safe="", errors="replace")

    def segment(name: str, text: str) -> str:
        if text in ("", ".", ".."):
            raise BadCall(f"{name!r} cannot be {text!r}: it is a part of the address")
        return word(name, text)

    path = outline.path.fill(values, segment)
    if any(part in (".", "..") for part in path.split("/")):
        raise BadCall("the values put '..' into the address, which leads elsewhere")
    query = outline.inline.fill(values, word)
    more: list[tuple[str, str]] = []
    for name, one in outline.query.items():
        given = values.get(one.only) if one.only else None
        if isinstance(given, list):
            more += [(name, _text(item)) for item in cast("list[Json]", given)]
        elif not one.lacks(values):
            more.append((name, _text(given) if given is not None else one.fill(values)))
    query = "&".join(filter(None, (query, urlencode(more, errors="replace"))))
    return f"{outline.origin}{path}{'?' + query if query else ''}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _body(outline: Outline, values: Mapping[str, Json]) -> tuple[dict[str, str], bytes | None]:
    if outline.form is not None:
        pairs = {name: one.fill(values) for name, one in outline.form.items() if not one.lacks(values)}
        return {"Content-Type": "application/x-www-form-urlencoded"}, urlencode(pairs, errors="replace").encode()
    match outline.body:
        case None:
            return {}, None
        case Template() as text:
            return {"Content-Type": "text/plain; charset=utf-8"}, text.fill(values).encode("utf-8", "replace")
        case tree:
            filled = json.dumps(_map_leaves(tree, lambda leaf, _: _fill_leaf(leaf, values)), ensure_ascii=False)
            return {"Content-Type": "application/json"}, filled.encode("utf-8", "replace")


def _fill_leaf(leaf: Json, values: Mapping[str, Json]) -> Json:
    """Fill a leaf. A template that is only one parameter gives the value itself, with its type; without a value it is
    left out."""
    if not isinstance(leaf, Template):
        return leaf
    if leaf.lacks(values):
        return _LEFT_OUT
    return values[leaf.only] if leaf.only else leaf.fill(values)


def _secrets(outline: Outline, ports: Ports, host: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in {name for one in outline.headers.values() for name in one.secrets}:
        value = ports.secret(name, host) if ports.secret else None
        if not value:
            fix = f"pinfold secret set {name} --host {host}"
            raise BadCall(f"the secret {name} is not set for {host}; the user can set it: {fix}")
        found[name] = value
    return found


def _without(text: str, secrets: Mapping[str, str]) -> str:
    """Redact secrets in every form in which a server or library might echo them."""
    for value in sorted(secrets.values(), key=len, reverse=True):
        as_json, as_python = json.dumps(value)[1:-1], repr(value)[1:-1]
        for form in dict.fromkeys((value, as_json, as_python, quote(value, safe=""), quote(value))):
            text = text.replace(form, "[redacted]")
    return text


def _response_result(answer: Fetched, outline: Outline) -> Result:
    text, value = read_body(answer)
    if not 200 <= answer.status < 300:
        raise BadCall(f"{outline.to} answered {answer.status}: {text[:_WORDS]}", sent=answer.sent)
    if outline.http.select:
        if "json" not in mime_of(answer) or isinstance(value, str):
            raise BadCall(f"{outline.to} did not answer with JSON, so `select` finds nothing", sent=answer.sent)
        try:
            value = select(value, outline.http.select)
        except LookupError as error:
            raise BadCall(f"the answer has no {error.args[0]}: {text[:_WORDS]}", sent=answer.sent) from None
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if answer.is_cut:
        text += f"\n[only the first {len(answer.body):,} bytes were read]"
    return Result(text=text or "(an empty answer)", value=value, sent=answer.sent)


def select(value: Json, path: str) -> Json:
    """Return a part of JSON: `data.items.0.name`, `*` for each item. Raises LookupError with the first missing step."""
    return _select_steps(value, [step for step in path.replace("[", ".").replace("]", "").split(".") if step], "")


def _select_steps(value: Json, steps: list[str], so_far: str) -> Json:
    if not steps:
        return value
    step, *rest = steps
    here = f"{so_far}.{step}".lstrip(".")
    if step == "*" and isinstance(value, list):
        return [_select_steps(item, rest, here) for item in cast("list[Json]", value)]
    if isinstance(value, dict) and step in value:
        return _select_steps(cast("dict[str, Json]", value)[step], rest, here)
    if isinstance(value, list) and step.lstrip("-").isdecimal():
        items = cast("list[object]", value)
        if -len(items) <= int(step) < len(items):
            return _select_steps(items[int(step)], rest, here)
    raise LookupError(repr(here))
