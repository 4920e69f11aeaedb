"""What can go wrong on the way out. Every text is one line, fit for a user and for an HTTP status line."""

from __future__ import annotations


class NetError(Exception):
    """Base.

    NetError
      BadDestination   the text names no place we would connect to
      BadPattern       yours: fix the list
      Refused          a rule or a person said no
      Unreachable      theirs, or the network's: it may work later
    """


class BadDestination(NetError):
    """Says what is wrong with the text."""


class BadPattern(NetError):
    """Says what is wrong with a line of an allow-list, and what to write instead."""


class Refused(NetError):
    """Not allowed; the reason is shown as it is."""


class Unreachable(NetError):
    """Allowed, and not to be had."""
