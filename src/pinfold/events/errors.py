"""Errors that more than one room must know. Every other error of ours lives in its own room, under this base."""

from __future__ import annotations

from typing import ClassVar


class PinfoldError(Exception):
    """Base. The message is one line for the user: what is wrong and what to do.

    PinfoldError
      RequestFailed       theirs: a model's server said no; ask again or switch
        ContextTooLong    the conversation does not fit into the model; shorten it or switch
      Unavailable         ours: the sandbox; never shown to the model as its program's output
    """

    exit_code: ClassVar[int] = 1
    """What a command that ends with this error exits with: 1 failed, 2 fix the input, 75 try again later."""


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
        """`retryable` is for whoever knows better than the status says."""
        super().__init__(message)
        self.status = status
        self.retry_after_s = retry_after_s
        self.request_id = request_id
        self._retryable = retryable

    @property
    def retryable(self) -> bool:
        """Asking again can help: no answer at all, too many requests, or a server in trouble."""
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
        """`size` is what the model can read, `needed` what it was given, in tokens, where anybody said so."""
        super().__init__(message, status=status, request_id=request_id, retryable=False)
        self.size = size
        self.needed = needed
