"""Converts an SDK's exceptions to RequestFailed: what happened, and whether and when to retry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

from pydantic_ai import exceptions as sdk

from pinfold.events import ContextTooLong, RequestFailed
from pinfold.model.wire.failures import request_id_of
from pinfold.model.wire.http import Patience
from pinfold.text import first_line, redact

_WORDS = 400
_THEIRS = {"stop": "stop_sequences", "max_tokens": "max_output_tokens"}


@dataclass(frozen=True, slots=True)
class FailureContext:
    """Details of the request that an error message may name."""

    key: str | None
    """None if the SDK finds credentials itself."""
    variables: str
    """Environment variables that may hold the key."""
    settings: Iterable[str]
    patience: Patience


def failure(error: Exception, asking: FailureContext) -> RequestFailed:
    words = _one_line(str(error), asking)
    match error:
        case RequestFailed():
            return error
        case sdk.ModelHTTPError():
            return _refusal(error, error, asking)
        case sdk.ModelAPIError():
            return RequestFailed(_describe_no_answer(error, asking))
        case sdk.UnexpectedModelBehavior():
            return RequestFailed(f"the answer cannot be read: {words}")
        case sdk.UserError():
            return RequestFailed(f"the request cannot be sent: {words}", retryable=False)
        case OSError():
            return RequestFailed(f"{type(error).__name__}: {words}")
        case _:
            # The SDK could not build a request from this, most likely because of a setting.
            named = ", ".join(asking.settings)
            hint = f"; is every setting right ({named})?" if named else ""
            return RequestFailed(f"the request cannot be sent: {type(error).__name__}: {words}{hint}", retryable=False)


def _refusal(error: sdk.ModelHTTPError, kind: sdk.ModelAPIError, asking: FailureContext) -> RequestFailed:
    """Convert an HTTP error status or an error within a stream. `kind` is `error`, typed by its other base class."""
    status, retryable = error.status_code, None
    words = _one_line(_error_message(error.body), asking)
    match kind:
        case sdk.ModelContextWindowExceededError():
            return _too_long(words, error)
        case sdk.ModelAuthenticationError():
            what = f"the key ({asking.variables})" if asking.key else "the login on this machine"
            said = f"{what} is refused ({status}): {words}"
        case sdk.ModelNotFoundError():
            meant = f"; did you mean {error.suggested_model_id}?" if error.suggested_model_id else ""
            said = f"there is no such model ({status}): {words}{meant}"
        case sdk.ModelQuotaExceededError():
            # Often a 429, like too many requests; but waiting does not help.
            retryable, said = False, f"the account has no credit left ({status}): {words}"
        case sdk.ModelRateLimitError():
            said = f"too many requests ({status}): {words}"
            details = _fields(_fields(_fields(error.body).get("error")).get("details"))
            if details.get("error_code") == "enforced_spend_limit_reached":
                retryable, said = False, f"the account has reached its limit ({status}): {words}"
        case sdk.ModelOverloadedError():
            said = f"overloaded ({status}): {words}"
        case sdk.ModelRequestRejectedError() if setting := _find_setting(words, asking.settings):
            said = f"refuses the setting {setting!r} ({status}): {words}; remove it from [model]"
        case _:
            said = f"{words} ({status})"
    return RequestFailed(
        said, status=status, retry_after_s=_wait_s(error), request_id=_request_id(error), retryable=retryable
    )


def _too_long(words: str, error: sdk.ModelHTTPError) -> ContextTooLong:
    """Read both sizes from messages such as Anthropic's `212000 tokens > 200000 maximum` or Google's
    `count (1200000) exceeds the maximum ... (1048576)`."""
    counts = [int(count) for count in re.findall(r"\d{4,}", words)]
    needed, size = counts if len(counts) == 2 else (None, None)
    return ContextTooLong(
        f"the conversation does not fit into the model: {words}",
        size=size,
        needed=needed,
        status=error.status_code,
        request_id=_request_id(error),
    )


def _describe_no_answer(error: sdk.ModelAPIError, asking: FailureContext) -> str:
    """Describe an error without an HTTP status, where a retry may help."""
    words = _one_line(error.message, asking)
    match error:
        case sdk.ModelRequestTimeout():
            return f"no answer within {asking.patience.first_s:g} s"
        case sdk.ModelTimeoutError(phase="connect"):
            return "cannot be reached: no connection in time"
        case sdk.ModelTimeoutError():
            return f"nothing came for {asking.patience.idle_s:g} s"
        case sdk.ModelConnectionError(phase="connect"):
            return f"cannot be reached: {words}"
        case sdk.ModelConnectionError():
            return f"the reply broke off: {words}"
        case _:
            return words


def _one_line(text: str, asking: FailureContext) -> str:
    return redact(first_line(text, _WORDS), [asking.key] if asking.key else ())


# Reading what providers send with an error


def _fields(value: object) -> Mapping[str, object]:
    """Return a JSON object of the body, also if the server sent it as a list of one."""
    if isinstance(value, list) and value:
        value = cast("list[object]", value)[0]
    return cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {}


def _error_message(body: object) -> str:
    fields = _fields(body)
    inner = _fields(fields.get("error")) or fields
    message = inner.get("message") or inner.get("detail") or body
    return message if isinstance(message, str) and message.strip() else "no reason given"


def _request_id(error: sdk.ModelHTTPError) -> str:
    return request_id_of(error.headers or {}, {"request_id": _fields(error.body).get("request_id")})


def _wait_s(error: sdk.ModelHTTPError) -> float | None:
    """Return the delay before a retry. In Google's body it is a `google.rpc.RetryInfo` with `"retryDelay": "17.5s"`."""
    if error.retry_after is not None:
        return error.retry_after
    details = _fields(_fields(error.body).get("error")).get("details")
    for detail in cast("list[object]", details) if isinstance(details, list) else []:
        delay = _fields(detail).get("retryDelay")
        if isinstance(delay, str) and re.fullmatch(r"\d+(\.\d+)?s", delay):
            return float(delay[:-1])
    return None


def _find_setting(words: str, settings: Iterable[str]) -> str | None:
    """Return the setting that a refusal names. Providers write names in their own case: `topK` is `top_k`."""
    # An everyday word such as `stop` counts only where it is marked as a name.
    marked = re.findall(r"[\"'`](\w+)[\"'`]|(\w+):", words)
    said = {_bare(word) for word in re.findall(r"\w+", words) if not word.islower() or "_" in word}
    said |= {_bare(word) for pair in marked for word in pair if word}
    said |= {word for word in ("temperature", "seed", "thinking") if word in words.lower()}
    return next((name for name in settings if said & {_bare(name), _bare(_THEIRS.get(name, name))}), None)


def _bare(name: str) -> str:
    return name.replace("_", "").lower()
