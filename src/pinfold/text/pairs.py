"""Secrets that only their surroundings give away: `password = ...`, `Authorization: ...`, `scheme://user:word@host`.

Linear: every repetition is bounded, or cannot begin again inside what it has read.
"""

from __future__ import annotations

import re

from pinfold.text.mark import MARK

_SECRETS = ("password", "passwd", "passphrase", "passcode", "pwd", "secret", "token")
_KEYS = (
    *("api", "secret", "access", "account", "private", "signing", "encryption", "subscription"),
    *("functions", "master", "session", "service", "license"),
)


def _any_of(words: tuple[str, ...]) -> str:
    """One of them, whose first letter was read already."""
    return "|".join(rf"(?<=[{word[0].upper()}{word[0]}])(?i:{word[1:]})" for word in words)


# The first letter apart: so the search looks closer at few places, and takes a quarter of the time.
_NAMES = (
    rf"[{''.join(sorted({word[0].upper() + word[0] for word in (*_SECRETS, *_KEYS)}))}]"
    rf"(?:{_any_of(_SECRETS)}|(?<=[_.-][Pp])(?i:ass)|(?<=_[Aa])(?i:uth)"
    rf"|(?:{_any_of(_KEYS)})[ _.-]?(?i:key)(?:[ _-]?(?i:id))?)"
)
_CERTAIN = ("pass", "pwd")
_WORDS = ("pass", "pwd", "secret", "token", "key", "sig", "auth")
_PAIR = re.compile(
    rf"(?P<name>{_NAMES})(?P<how>\\{{0,16}}[\"']?[ \t]{{0,8}}(?:=>|:=|=|:)[ \t]{{0,8}})"
    r"(?:(?P<quote>\\{0,16}[\"'])(?P<quoted>[^\"'\\\r\n]{1,512})|(?P<plain>[^\s\"'\\,;&<>|`]+))"
)
_FLAG = re.compile(
    rf"(?P<how>--(?:[a-z0-9]{{1,20}}-){{0,3}}(?P<name>{_NAMES})(?:[ \t]{{1,8}}|=))"
    r"(?:(?P<quote>[\"'])(?P<quoted>[^\"'\r\n]{1,512})|(?P<plain>[^\s\"']+))"
)
_QUERY = re.compile(
    r"(?P<how>[?&](?i:[a-z0-9_.-]{0,24}(?:token|secret|passwo?r?d|pwd|api_?key|access_?key|signature|sig|auth))=)"
    r"(?P<value>[^\s\"'&#<>\\]{4,})"
)
_HEADER = re.compile(
    r"(?P<how>(?i:authorization)\\{0,16}[\"']?\s{0,4}[:=]\s{0,4}\\{0,16}[\"']?"
    r"(?:(?i:bearer|basic|token|digest|negotiate|apikey|aws4-hmac-sha256)\s{1,4})?)"
    r"(?P<value>[^\s\"',\\]{6,})"
)
_SCHEME = re.compile(r"(?P<how>\b(?i:bearer|basic)[ \t]{1,4})(?P<value>[\w+/=.~-]{12,})")
_COOKIE = re.compile(
    r"(?P<how>\b(?i:set-cookie|cookie)\\{0,16}[\"']?:[ \t]{0,4}\\{0,16}[\"']?[\w.-]{1,64}=)(?P<value>[^\r\n\"'\\]{6,})"
)
_USERINFO = re.compile(
    # The sign of a line in a diff stands right before it.
    r"(?P<how>(?:(?<![\w+.-])|(?<=^[+-]))[A-Za-z][\w+.-]{1,30}:/{1,2}[^\s:/@\"'<>]{0,256}:)"
    r"(?P<value>[^\s/@\"'<>]{1,512})(?=@)",
    re.MULTILINE,
)
_LOGIN = re.compile(r"(?P<how>\blogin\s{1,8}\S{1,128}\s{1,8}password\s{1,8})(?P<value>[^\s\"'\\]+)")
_USER = re.compile(r"(?P<how>\s(?:-u|--user)[ =]?[\"']?[\w.@+-]{1,64}:)(?P<value>[^\s\"']+)")
_BEFORE = 300
"""Letters before an option in which the program it is for is looked for."""
_PEM = re.compile(r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY(?: BLOCK)?-----")
_PEM_END = "-----END"
_PEM_LENGTH = 20_000
_PEM_BODY = re.compile(r"(?:\\+[nr]|[A-Za-z0-9+/=\s:,.>|-])*")

_PLACEHOLDER = re.compile(
    r"\$\(.*|\$\{.*|\$[A-Za-z_]\w*|%.*%|--.*|<.*|\{.*|\*+|x+|X+|\.+|-+|_+|(?:your|my)[_-][A-Za-z_-]*|example[A-Za-z_-]*"
    r"|change.?me|\[redacted.*|undefined|[A-Z][A-Z_]*"
    r"|(?i:none|null|true|false|nil|str|string|int|bool|bytes|optional|required|secretstr|hidden|incorrect|invalid)\W?"
    r"|(?i:password|passwd|token|secret|key|api.?key)[\d\W]?"
)
# What code says for a value that is elsewhere: `self.token`, `load(`, `keys[`, `user_password_1`.
_CODE = re.compile(r"[A-Za-z_]+\d?(?:\.[A-Za-z_]+\d?)+|[A-Za-z_][\w.:]*[(\[{].*")
_NAME = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*(?:_?\d)?")
_SPACE = re.compile(r"\s")
_MIXED = re.compile(r"(?=.*[A-Za-z])(?=.*\d)", re.DOTALL)


def without_pairs(text: str) -> str:
    """`text` with the secret of each such pair hidden, and its name left."""
    lowered = text.lower()
    if "-----begin" in lowered:
        text = _without_private_keys(text)
    if ":/" in text and "@" in text:
        text = _USERINFO.sub(_hidden, text)
    if "authorization" in lowered:
        text = _HEADER.sub(_hidden_unless_a_word, text)
    if "bearer" in lowered or "basic" in lowered:
        text = _SCHEME.sub(_hidden_if_random, text)
    if "cookie" in lowered:
        text = _COOKIE.sub(_hidden, text)
    if "login" in lowered:
        text = _LOGIN.sub(_hidden, text)
    if "curl" in lowered:
        text = _USER.sub(_hidden_after_curl, text)
    if any(word in lowered for word in _WORDS):
        text = _PAIR.sub(_pair, _FLAG.sub(_flag, _QUERY.sub(_hidden, text)))
    return text


def _hidden(match: re.Match[str]) -> str:
    return match.group() if _PLACEHOLDER.fullmatch(match["value"]) else match["how"] + MARK


def _hidden_unless_a_word(match: re.Match[str]) -> str:
    value = match["value"]
    return _hidden(match) if _looks_random(value) or not value.isalpha() else match.group()


def _hidden_if_random(match: re.Match[str]) -> str:
    return _hidden(match) if _looks_random(match["value"]) else match.group()


def _hidden_after_curl(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    return _hidden(match) if "curl" in before.rpartition("\n")[2] else match.group()


def _looks_random(value: str) -> bool:
    inside = value[1:]
    is_mixed_case = not (inside.islower() or inside.isupper() or "-" in inside or "_" in inside)
    return bool(_MIXED.match(value)) or value.endswith("=") or (len(value) >= 12 and is_mixed_case)


def _flag(match: re.Match[str]) -> str:
    value = match["quoted"] or match["plain"]
    if len(value) < 6 or _PLACEHOLDER.fullmatch(value) or value.isalpha():
        return match.group()
    return f"{match['how']}{match['quote'] or ''}{MARK}"


def _pair(match: re.Match[str]) -> str:
    value = match["quoted"] or match["plain"]
    if len(value) < 6 or _PLACEHOLDER.fullmatch(value) or not _is_secret(match, value):
        return match.group()
    return f"{match['name']}{match['how']}{match['quote'] or ''}{MARK}"


def _is_secret(match: re.Match[str], value: str) -> bool:
    name = match["name"].lower()
    if name in ("passphrase", "pwd"):
        return name == "passphrase" or not value.startswith(("/", "~"))
    certain = name.startswith(_CERTAIN)
    if match["quote"]:
        return not _SPACE.search(value) and (certain or bool(_MIXED.match(value)))
    if match["how"] == "=" and match["name"].isupper():
        return True  # as in a file of variables
    if _CODE.fullmatch(value):
        return False
    if certain:
        return not value.isalpha() and not ("_" in value and _NAME.fullmatch(value))
    return bool(_MIXED.match(value)) and not _NAME.fullmatch(value)


def _without_private_keys(text: str) -> str:
    """From its first line to its last; one that is cut off, as far as it looks like one."""
    parts: list[str] = []
    at = 0
    ends = text.find(_PEM_END)
    while begins := _PEM.search(text, at):
        while 0 <= ends < begins.end():
            ends = text.find(_PEM_END, ends + 1)
        parts += (text[at : begins.start()], MARK)
        if 0 <= ends - begins.end() <= _PEM_LENGTH:
            line = text.find("-----", ends + len(_PEM_END), ends + 80)
            at = line + 5 if line >= 0 else ends + len(_PEM_END)
        else:
            body = _PEM_BODY.match(text, begins.end())
            at = body.end() if body else begins.end()
    return "".join(parts) + text[at:] if parts else text
