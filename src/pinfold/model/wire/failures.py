"""Converts a server's error response to an exception that says what to do. Pure: no network."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping

from pinfold.events import BadEvent, ContextTooLong, Json, RequestFailed, plain_json
from pinfold.model.wire.payload import as_count, as_list, as_object, as_text, parse_payload
from pinfold.text import printable, redact

_WORDS = 400
_LOOKED_AT = 2**16
_ID = 200
_REQUEST_ID_HEADERS = ("x-request-id", "request-id", "x-amzn-requestid", "x-goog-request-id", "cf-ray")

# Patterns are compiled on the first error, not on import.
_TITLE = rb"(?i)<title[^>]*>([^<]{1,200})"

_TOO_LONG = (
    r"(?i)context_length_exceeded|exceed_context_size|maximum context length|available context size"
    r"|exceeds? (?:the |its )?(?:model'?s? )?(?:maximum |available )?context"
    r"|context (?:length|size|window|limit) (?:of|is) only|(?:greater|longer) than the (?:maximum )?(?:context|model) length"
    r"|prompt (?:is )?too long|maximum prompt length|maximum number of tokens allowed|context overflow"
    r"|reduce the length of (?:the|your) (?:messages|prompt|input)"
)
_ANSWER_TOO_LONG = r"(?i)max_(?:completion_|new_)?tokens\W{0,3}(?: or .{1,40})? is too large"
_SIZE = (
    r"(?i)(?:context (?:length|size|window|limit)(?: of only| is only| of| is)?|n_ctx|model length of"
    r"|prompt length is|tokens allowed|>)[\s:(=]*(\d[\d,]{2,})"
)
_NO_CREDIT = frozenset({"insufficient_quota", "billing_hard_limit_reached", "billing_not_active"})
"""Error codes for which waiting does not help."""
_NUMBER = r"\d[\d,]{2,}"
_NO_TOOLS = (
    r"(?is)\b(?:tools?|functions?)\b.*\b(?:not support\w*|unsupported|not enabled|not available|requires?)\b"
    r"|\b(?:not support|unsupported|no endpoints found that support)\b.*\b(?:tools?|functions?)\b"
)
_NO_MODEL = (
    r"(?is)\bmodel\b.*\b(?:not exist|not found|not available|no access|unknown|invalid)\b"
    r"|\b(?:unknown|invalid|no such|not a valid) model\b"
)


class Refused(RequestFailed):
    """RequestFailed with the server's message, so that callers can try the request in another form."""

    words: str = ""
    """The server's message."""
    param: str = ""
    """The request field that the server names."""

    @property
    def takes_no_tools(self) -> bool:
        return (
            self.status in (400, 404, 422, 500, 501)
            and bool(re.search(_NO_TOOLS, self.words))
            and "schema" not in self.words.lower()
        )

    @property
    def knows_no_model(self) -> bool:
        """True if the server does not know the model's name."""
        return bool(re.search(_NO_MODEL, self.words))

    def names(self, setting: str) -> bool:
        """True if the server refuses this field of the request."""
        if self.status not in (400, 422):
            return False
        if self.param == setting:
            return True
        # An everyday word such as `stop` counts only where it is marked as a name.
        word = re.escape(setting)
        marked = rf"[\"'`\[]{word}[\"'`\]]|(?:supplied|param\w*|field|argument|option): ?{word}\b|\bbody\.{word}\b"
        plain = rf"(?<![\w.]){word}(?!\w)" if "_" in setting or setting in ("temperature", "seed") else r"(?!)"
        return bool(re.search(f"{marked}|{plain}", self.words, re.IGNORECASE))

    def because_of(self, settings: Mapping[str, str]) -> RequestFailed:
        """Return an error that names the refused setting, else this one. `settings` maps sent names to settings."""
        for sent, setting in settings.items():
            if self.names(sent):
                words = f"the server refuses the setting {setting!r}: {self.words}; remove it from [model]"
                return RequestFailed(words, status=self.status, request_id=self.request_id)
        return self


def refusal(
    status: int | None,
    body: bytes | Json,
    *,
    headers: Mapping[str, str] | None = None,
    url: str = "",
    secrets: Collection[str] = (),
) -> RequestFailed:
    """Build the exception for a server's error. `status` is None for an error in the middle of a reply."""
    headers = headers or {}
    page = _page_title(body) if isinstance(body, bytes) else None
    said: Json = _read(body) if isinstance(body, bytes) else body
    words = one_line(_words(said) if page is None else page, secrets)
    error = as_object(as_object(said).get("error")) or as_object(said)
    status = _status_in(error) if status is None else status
    request_id = request_id_of(headers, as_object(said))
    if status != 429 and (too_long := _too_long(status, error, words, request_id)):
        return too_long
    is_out_of_credit = not _NO_CREDIT.isdisjoint((as_text(error.get("code")), as_text(error.get("type"))))
    refused = Refused(
        _sentence(status, words, url, named=page is None),
        status=status,
        retry_after_s=retry_after(headers),
        request_id=request_id,
        retryable=False if is_out_of_credit else None,
    )
    refused.words, refused.param = words, as_text(error.get("param"))
    return refused


def _sentence(status: int | None, words: str, url: str, *, named: bool) -> str:
    if status is None:
        return words or "the server reported an error without a message"
    from http import HTTPStatus

    phrase = next((f" {known.phrase}" for known in HTTPStatus if known == status), "")
    start = f"{status}{phrase}: {words}" if words else f"{status}{phrase}"
    match status:
        case 401 | 403:
            return f"{start}; check the key"
        case 404 | 405 if url and not (words and named):
            return f"{start}; is the URL right? {url}"
        case _ if 300 <= status < 400:
            return f"{start}; the server has moved from {url}"
        case _:
            return start


def _read(body: bytes) -> Json:
    text = body.decode("utf-8", "replace")
    try:
        said = parse_payload(text)
    except BadEvent:
        return text
    # Some servers send the error inside a list.
    return next(iter(as_list(said)), said)


def _page_title(body: bytes) -> str | None:
    """Return the title of a web page; None if `body` is no web page."""
    if not body.lstrip().startswith(b"<"):
        return None
    title = re.search(_TITLE, body)
    return title[1].decode("utf-8", "replace") if title else ""


def _words(said: Json) -> str:
    match said:
        case str():
            return said
        case {"message": str(message), "metadata": {"raw": str(raw)}} if raw:
            return f"{message}: {raw}"
        case {"error": inner} | {"message": inner} | {"detail": inner} if inner:
            return _words(inner)
        case {"loc": [*place], "msg": str(message)}:
            return f"{'.'.join(map(str, place))}: {message}"
        case [first, *_]:
            return _words(first)
        case None | [] | {}:
            return ""
        case _:
            return plain_json(said)


def one_line(text: str, secrets: Collection[str] = ()) -> str:
    """Prepare a server's text for one of our messages: one line, bounded, secrets redacted."""
    line = printable(redact(" ".join(text[:_LOOKED_AT].split()), secrets))
    return line if len(line) <= _WORDS else line[: _WORDS - 3] + "..."


def _status_in(error: Mapping[str, Json]) -> int | None:
    for name in ("code", "status", "status_code"):
        if isinstance(error.get(name), int | str) and str(error[name]).isdecimal():
            number = int(str(error[name])[:4])
            if 400 <= number < 600:
                return number
    return 400 if "invalid_request" in as_text(error.get("type")) else None


def request_id_of(headers: Mapping[str, str], body: Mapping[str, Json]) -> str:
    found = next((headers[name] for name in _REQUEST_ID_HEADERS if headers.get(name)), "")
    return printable(found or as_text(body.get("request_id")) or as_text(body.get("id")))[:_ID]


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait that the server asks for: sent as milliseconds, seconds or a date."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            wait_s = float(headers.get(name, "")) * unit
        except ValueError:
            continue
        if math.isfinite(wait_s):
            return max(0.0, wait_s)
    return _until(headers.get("retry-after", ""))


def _until(date: str) -> float | None:
    if not date:
        return None
    from datetime import UTC, datetime
    from email.utils import parsedate_to_datetime

    try:
        then = parsedate_to_datetime(date)
        # Like all HTTP dates, a date without a zone is in UTC.
        wait = (then if then.tzinfo else then.replace(tzinfo=UTC)) - datetime.now(UTC)
    except (ValueError, OverflowError):
        return None
    return max(0.0, wait.total_seconds())


def _too_long(status: int | None, error: Mapping[str, Json], words: str, request_id: str) -> ContextTooLong | None:
    marks = " ".join([as_text(error.get("code")), as_text(error.get("type")), words])
    if not re.search(_TOO_LONG, marks) or re.search(_ANSWER_TOO_LONG, words):
        return None
    size = as_count(error.get("n_ctx")) or next(map(_number, re.findall(_SIZE, words)), 0)
    needed = as_count(error.get("n_prompt_tokens")) or max(map(_number, re.findall(_NUMBER, words)), default=0)
    return ContextTooLong(
        too_long_words(size or None, needed if needed > size else None) + (f": {words}" if words else ""),
        size=size or None,
        needed=needed if needed > size else None,
        status=status,
        request_id=request_id,
    )


def too_long_words(size: int | None, needed: int | None) -> str:
    given = f"the conversation ({needed:,} tokens)" if needed else "the conversation"
    room = f"the model's context ({size:,} tokens)" if size else "the model's context"
    return f"{given} is longer than {room}"


def _number(digits: str) -> int:
    return as_count(int(digits.replace(",", "")[:18]))


def holds_error(body: Json) -> bool:
    """True for an error sent with a success status or in the middle of a reply."""
    fields = as_object(body)
    return bool(fields.get("error")) or fields.get("object") == "error"
