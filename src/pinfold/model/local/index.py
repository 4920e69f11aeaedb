"""Finds one wheel on a package index, by the simple API: JSON or HTML, as the index likes."""

from __future__ import annotations

from collections.abc import Mapping
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin, urlsplit, urlunsplit

import msgspec

from pinfold.model.local.catalogue import Part
from pinfold.model.local.download import DownloadFailed, words_of

if TYPE_CHECKING:
    import httpx2

_JSON = "application/vnd.pypi.simple.v1+json"


def index_of(environ: Mapping[str, str]) -> str:
    """The index that uv or pip would ask."""
    for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL", "PIP_INDEX_URL"):
        if given := environ.get(name, "").strip():
            # uv lets an index have a name: `mirror=https://...`
            return given if given.startswith("http") else given.partition("=")[2] or given
    return "https://pypi.org/simple"


async def wheel_url(http: httpx2.AsyncClient, index: str, part: Part) -> str:
    """Where the wheel of this part lies. Raises Broken."""
    import httpx2

    page = f"{index.rstrip('/')}/{part.package}/"
    try:
        answer = await http.get(page, headers={"Accept": f"{_JSON}, text/html;q=0.5"})
    except (httpx2.RequestError, httpx2.InvalidURL) as error:
        raise DownloadFailed(words_of(error)) from error
    if answer.status_code == 404:
        raise DownloadFailed(f"there is no package {part.package!r} any more")
    if answer.status_code != 200:
        raise DownloadFailed(f"it answered {answer.status_code}")
    links = _json_links(answer.content) if "json" in answer.headers.get("content-type", "") else _links(answer.text)
    base = page if not answer.history else str(answer.url)
    for link in links:
        parts = urlsplit(urljoin(base, link))
        if parts.path.rpartition("/")[2] == part.wheel:
            return urlunsplit(parts._replace(fragment=""))
    raise DownloadFailed(f"there is no {part.wheel} any more")


def without_secrets(url: str) -> str:
    """The address without the user and password some mirrors have in it."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))


def _json_links(content: bytes) -> list[str]:
    try:
        said = msgspec.json.decode(content, type=dict[str, Any])
        files = cast(list[dict[str, Any]], said["files"])
        return [str(file["url"]) for file in files]
    except (msgspec.MsgspecError, KeyError, TypeError) as error:
        raise DownloadFailed("its list of files is broken") from error


def _links(text: str) -> list[str]:
    reader = _Links()
    reader.feed(text)
    return reader.links


class _Links(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "a":
            self.links += [value for name, value in attrs if name == "href" and value]
