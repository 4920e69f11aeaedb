"""Errors that several rooms share. Other errors live in their own room and derive from PinfoldError."""

from __future__ import annotations

from typing import ClassVar


class PinfoldError(Exception):
    """Base. The message is one line for the user: what is wrong and what to do.

    PinfoldError
      RequestFailed       the model server refused or failed; retry or switch
        ContextTooLong    the conversation does not fit into the model; shorten it or switch
      Unavailable         our sandbox is unavailable; never shown to the model as program output
    """

    exit_code: ClassVar[int] = 1
    """Exit code of a command that ends with this error: 1 failed, 2 fix the input, 75 try again later."""


class Unavailable(PinfoldError):
    exit_code = 2


class RequestFailed(PinfoldError):
    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        retry_after_s: float | None = None,
        request_id: str = "",
        retryable: bool | None = None,
    ) -> None:
        """`retryable` overrides what the status implies."""
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self._retryable = retryable

    @property
    def retryable(self) -> bool:
        """True if a retry can help: no answer, too many requests, or a server error."""
        if self._retryable is not None:
            return self._retryable
        return self.status is None or self.status in (408, 409, 425, 429) or self.status >= 500


class ContextTooLong(RequestFailed):
    def __init__(
        self,
        message: str,
        *,
        size: int | None = None,
        needed: int | None = None,
        status: int | None = None,
        request_id: str = "",
    ) -> None:
        """`size` is the model's context and `needed` the request's length, in tokens, if the server reported them."""
        super().__init__(message, status=status, request_id=request_id, retryable=False)
        self.size = size
        self.needed = needed
