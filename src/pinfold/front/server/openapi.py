"""Describes the server's API from its endpoints, as an OpenAPI document and as a web page."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

import msgspec

from pinfold import __version__
from pinfold.events import Json
from pinfold.front.server.endpoints import AnyEndpoint, Nothing

_REF = "#/components/schemas/{name}"
_ERROR: Json = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {"message": {"type": "string"}, "type": {"type": "string"}},
        }
    },
}
_REFUSED = (400, 401, 403, 404, 409, 413, 415, 421, 422, 429, 502, 503)
_PARAMETER = re.compile(r"\{(\w+)(:path)?\}")


def describe(endpoints: Sequence[AnyEndpoint]) -> dict[str, Json]:
    """Return an OpenAPI 3.1 document."""
    types = [one for each in endpoints for one in (each.body, each.answer) if one not in (None, Nothing)]
    schemas, components = msgspec.json.schema_components(types, ref_template=_REF)
    known = dict(zip(map(repr, types), schemas, strict=True))
    paths: dict[str, dict[str, Json]] = {}
    for one in endpoints:
        paths.setdefault(_plain(one.path), {})[one.method.lower()] = _operation(one, known)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Pinfold", "version": __version__},
        "paths": paths,
        "components": {
            "schemas": {**components, "Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _plain(path: str) -> str:
    return _PARAMETER.sub(r"{\1}", path)


def _operation(one: AnyEndpoint, schemas: dict[str, Json]) -> dict[str, Json]:
    described: dict[str, Json] = {
        "summary": one.summary,
        "operationId": one.handle.__name__,
        "parameters": [*_path_parameters(one), *_query_parameters(one)],
        "responses": {str(status): _error_response() for status in _REFUSED},
    }
    if one.body is not Nothing:
        content = {"application/json": {"schema": schemas[repr(one.body)]}}
        described["requestBody"] = {"required": _is_needed(one.body), "content": content}
    elif one.upload:
        is_form = one.upload.startswith("multipart/")
        described["requestBody"] = {"required": is_form, "content": {one.upload: {"schema": _upload(one)}}}
    if one.is_public:
        described["security"] = []
    content: dict[str, Json] = {}
    if one.answer is not None:
        content["application/json"] = {"schema": schemas[repr(one.answer)]}
    if one.media:
        content[one.media] = {"schema": {"type": "string", "contentMediaType": one.media}}
    described["responses"][str(one.status)] = {"description": "Done", **({"content": content} if content else {})}
    return described


def _is_needed(kind: object) -> bool:
    """True if a body must be sent; False if each of its fields may be left out."""
    return not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)) or any(
        field.required for field in msgspec.structs.fields(kind)
    )


def _error_response() -> dict[str, Json]:
    return {"description": "Refused", "content": {"application/json": {"schema": {"$ref": _REF.format(name="Error")}}}}


def _upload(one: AnyEndpoint) -> dict[str, Json]:
    if one.form:
        return {"type": "object", "required": [*one.form][:1], "properties": one.form}
    return {"type": "string", "contentMediaType": one.upload}


def _path_parameters(one: AnyEndpoint) -> list[dict[str, Json]]:
    return [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}}
        for name, _ in _PARAMETER.findall(one.path)
    ]


def _query_parameters(one: AnyEndpoint) -> list[dict[str, Json]]:
    if one.query is Nothing:
        return []
    (_,), components = msgspec.json.schema_components([one.query], ref_template=_REF)
    described: dict[str, Json] = components[one.query.__name__]["properties"]
    return [{"name": name, "in": "query", "schema": schema} for name, schema in described.items()]


def to_page(endpoints: Sequence[AnyEndpoint]) -> str:
    """Return a plain page for people; programs read /openapi.json."""
    rows = "".join(
        f"<tr><td><code>{one.method}</code></td><td><code>{escape(_plain(one.path))}</code></td>"
        f"<td>{escape(one.summary)}</td></tr>"
        for one in endpoints
    )
    style = "body{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}td{padding:.2rem 1rem .2rem 0;vertical-align:top}"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>Pinfold: API</title><style>{style}</style>'
        f"<h1>Pinfold {escape(__version__)}</h1><p>Every request needs <code>Authorization: Bearer TOKEN</code>; "
        f'the types are in <a href="/openapi.json">openapi.json</a>.</p><table>{rows}</table></html>'
    )
