"""What is found in a shell command."""

from __future__ import annotations

from msgspec import Struct

_SYSTEM = ("/bin/", "/usr/bin/", "/sbin/", "/usr/sbin/")


class Word(Struct, frozen=True):
    """One word of a command, as far as it is known before the shell has expanded it."""

    shown: str
    """As it was written."""
    text: str | None
    """What the command gets, where that is certain."""
    head: str = ""
    """How it begins, where the whole is not certain."""


class Command(Struct, frozen=True, kw_only=True):
    """A simple command, wherever it stands: in a chain, a substitution, a loop, another command's arguments."""

    words: tuple[Word, ...]
    shown: str
    why: str = ""
    """Why it is expected to write; empty if it is expected to read."""
    harmless: bool = False
    """It changes nothing, whatever its arguments are."""

    @property
    def name(self) -> str:
        """Empty if it is not certain."""
        return self.words[0].text or "" if self.words else ""

    @property
    def reads_only(self) -> bool:
        return not self.why


class Script(Struct, frozen=True, kw_only=True):
    """A shell command, read as far as it can be. It predicts; what runs as reading is held to it by the sandbox."""

    commands: tuple[Command, ...] = ()
    """In the order they are written; a command that another one runs comes after it."""
    besides: tuple[str, ...] = ()
    """What it does that is not for one of the commands to answer for: redirects, assignments, functions."""
    writes: tuple[str, ...] = ()
    """Paths it writes to, where they are known."""
    deletes: tuple[str, ...] = ()
    """Paths it deletes, where they are known."""
    why: str = ""
    """The first reason it is expected to write."""
    dangerous: str | None = None
    """Why it may harm more than the workspace."""
    unparsed: bool = False
    """Some of it is not understood, so there may be more to it than the commands say."""
    unread: bool = False
    """Some of it was not even looked at."""
    plain: tuple[str, ...] = ()
    """Its words, where the whole of it is one simple command of which the shell changes nothing but patterns of files."""

    @property
    def reads_only(self) -> bool:
        """As far as can be told beforehand."""
        return not self.why and not self.unparsed and self.dangerous is None


def base_name(name: str) -> str:
    """A program by its path is that program only where nobody but the system puts programs."""
    for folder in _SYSTEM:
        if name.startswith(folder) and "/" not in name.removeprefix(folder):
            return name.removeprefix(folder)
    return name
