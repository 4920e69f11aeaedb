"""Finds secrets by their form: keys by their issuer's prefix, and values by the text around them (`password = ...`,
`Authorization: ...`, `scheme://user:word@host`). Finds them, and known values, also behind escapes: HTML entities,
percent signs, backslashes, wrapped base64.

Every pattern takes linear time: its repetitions are bounded, or cannot begin again inside what they have read.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import cache, lru_cache

from pinfold.text.format import MARK, bare

# Prefixes of keys, by the pattern of what follows. Prefixes that occur in ordinary words must also begin a word.
_DISTINCT = {
    r"\w{20,}": "github_pat_ ghp_ gho_ ghu_ ghr_ CCIPAT_",
    r"[\w.-]{20,}": "ghs_",
    r"[\w.-]{18,}": "glpat- glrt-",
    r"[\w-]{18,}": "gldt- glptt- glcbt- glagent- gloas-",
    r"[\w-]{20,}": "sk-ant- ya29. GOCSPX- xapp- dckr_pat_ sq0atp- sq0csp- hvs. hvb.",
    r"[\w-]{30,}": "AIza pypi-AgE figd_ HRKU-",
    r"[\w-]{10,}": "xoxa- xoxb- xoxe- xoxo- xoxp- xoxr- xoxs-",
    r"[\w.-]{10,}": "xoxe.",
    r"(?:services|workflows|triggers)/[\w/-]{20,}": "hooks.slack.com/",
    r"\d{10,25}/[\w-]{20,}": "/api/webhooks/",
    r"\w{10,}": "sk_live_ sk_test_ rk_live_ rk_test_",
    r"[\w+/=]{20,}": "whsec_",
    r"[A-Za-z0-9]{30,}": "npm_ lin_api_ dp.pt. nfp_ gsk_ pplx-",
    r"[A-Za-z]{30,}": "api_org_",
    r"[a-f0-9]{40,}": "dop_v1_ doo_v1_ dor_v1_ CLOJARS_",
    r"[A-Fa-f0-9]{30,}": "shpat_ shpss_ shpca_",
    r"[A-Za-z0-9]{30,}_[A-Fa-f0-9]{8}": "glsa_",
    r"[A-Za-z0-9+/=]{30,}": "glc_eyJ",
    r"[a-f0-9]{20,}-[a-f0-9]{30,}": "PMAK-",
    r"[A-Z0-9]{20,}": "NRAK-",
    r"[\w+/=-]{30,}": "sntrys_",
    r"[\w-]{40,}": ".atlasv1.",
    r"[A-Z0-9]{40,}": "AGE-SECRET-KEY-1",
    r"[a-f0-9]{30,}": "sbp_ rubygems_",
    r"[\w.=-]{20,}": "pscale_tkn_ pscale_pw_",
    r"[\w=-]{40,}": "ATATT3 ops_eyJ",
    r"[a-z]{3,12}-[\w-]{15,}": "tskey-",
    r"[A-Za-z0-9]{12,20}\b": "LTAI",
}
_WORDS = {
    r"(?=[A-Za-z_-]*\d)[\w-]{20,}": "sk-",
    r"[A-Za-z0-9]{20,}": "hf_ fw_",
    r"[A-Za-z0-9]{40,}": "xai-",
    r"[A-Za-z0-9]{30,}": "r8_ ntn_",
    r"[A-Za-z0-9]{43}\b": "secret_",
    r"[a-f0-9]{32}\b": "key- SK",
    r"[a-f0-9]{32}(?:-\d)?\b": "dapi",
    r"[0-9A-Z]{16}\b": "AKIA ASIA ABIA",
    r"[\w-]{16,32}\.[\w-]{20,}": "SG.",
    r"[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}": "eyJ",
    r"[\w-]{100,}": "sl.",
    r"[A-Za-z0-9]{60,}": "EAA",
}
# Whole patterns of keys without a prefix, by letters that occur in all of them.
_INSIDE = {
    "-us": r"\b[a-f0-9]{32}-us\d{1,2}\b",
    "Q~": r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])",
    ":AA": r"(?<!\d)\d{8,10}:AA[\w-]{32,34}(?![\w-])",
    ".": r"(?<![\w.-])(?:[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w-])|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b)",
}


_SECRETS = ("password", "passwd", "passphrase", "passcode", "pwd", "secret", "token")
_KEYS = (
    *("api", "secret", "access", "account", "private", "signing", "encryption", "subscription"),
    *("functions", "master", "session", "service", "license"),
)


def _any_of(words: tuple[str, ...]) -> str:
    """Return a pattern for any of the words, whose first letter has been matched already."""
    return "|".join(rf"(?<=[{word[0].upper()}{word[0]}])(?i:{word[1:]})" for word in words)


# The first letter is matched separately, which makes the search four times as fast.
_NAMES = (
    rf"[{''.join(sorted({word[0].upper() + word[0] for word in (*_SECRETS, *_KEYS)}))}]"
    rf"(?:{_any_of(_SECRETS)}|(?<=[_.-][Pp])(?i:ass)|(?<=_[Aa])(?i:uth)"
    rf"|(?:{_any_of(_KEYS)})[ _.-]?(?i:key)(?:[ _-]?(?i:id))?)"
)
_PAIR_WORDS = ("pass", "pwd", "secret", "token", "key", "sig", "auth")
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
    # In a diff the line's `+` or `-` comes right before the scheme.
    r"(?P<how>(?:(?<![\w+.-])|(?<=^[+-]))[A-Za-z][\w+.-]{1,30}:/{1,2}[^\s:/@\"'<>]{0,256}:)"
    r"(?P<value>[^\s/@\"'<>]{1,512})(?=@)",
    re.MULTILINE,
)
_LOGIN = re.compile(r"(?P<how>\blogin\s{1,8}\S{1,128}\s{1,8}password\s{1,8})(?P<value>[^\s\"'\\]+)")
_USER = re.compile(r"(?P<how>\s(?:-u|--user)[ =]?[\"']?[\w.@+-]{1,64}:)(?P<value>[^\s\"']+)")
_BEFORE = 300
"""How many characters before a `-u` option are searched for `curl`."""
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
# Code that refers to a value elsewhere: `self.token`, `load(`, `keys[`, `user_password_1`.
_CODE = re.compile(r"[A-Za-z_]+\d?(?:\.[A-Za-z_]+\d?)+|[A-Za-z_][\w.:]*[(\[{].*")
_NAME = re.compile(r"[A-Za-z]+(?:_[A-Za-z]+)*(?:_?\d)?")
_SPACE = re.compile(r"\s")
_MIXED = re.compile(r"(?=.*[A-Za-z])(?=.*\d)", re.DOTALL)


def without_shapes(text: str) -> str:
    """Return `text` without anything that looks like a key."""
    for needle, pattern in _PATTERNS.items():
        if needle in text:
            text = _compiled(pattern).sub(MARK, text)
    return text


def shapes_in(text: str) -> Iterator[tuple[int, int]]:
    """Yield the spans of `text` that look like a key."""
    for needle, pattern in _PATTERNS.items():
        if needle in text:
            yield from (match.span() for match in _compiled(pattern).finditer(text))


def _patterns() -> Iterator[tuple[str, str]]:
    """Yield letters that occur in every match of a pattern, and the pattern: it is tried only where they occur."""
    for rest, prefixes in _DISTINCT.items():
        yield from ((prefix, re.escape(prefix) + rest) for prefix in prefixes.split())
    for rest, prefixes in _WORDS.items():
        for prefix in prefixes.split():
            here = re.escape(prefix)
            yield prefix, rf"{here}(?<![\w-]{here}){rest}"
    yield from _INSIDE.items()


_PATTERNS = dict(_patterns())
_compiled = cache(re.compile)
KNOWN_PREFIXES = tuple(" ".join((*_DISTINCT.values(), *_WORDS.values())).split())


def without_pairs(text: str) -> str:
    """Return `text` with the secret values of names such as `password` hidden."""
    lowered = text.lower()
    if "-----begin" in lowered:
        text = _without_private_keys(text)
    for words, pattern, hide in _PAIR_RULES:
        if any(word in lowered for word in words):
            text = pattern.sub(hide, text)
    return text


def _hide(match: re.Match[str]) -> str:
    return match.group() if _PLACEHOLDER.fullmatch(match["value"]) else match["how"] + MARK


def _hide_unless_a_word(match: re.Match[str]) -> str:
    return _hide(match) if not match["value"].isalpha() else _hide_if_random(match)


def _hide_if_random(match: re.Match[str]) -> str:
    return _hide(match) if _looks_random(match["value"]) else match.group()


def _hide_after_curl(match: re.Match[str]) -> str:
    before = match.string[max(0, match.start() - _BEFORE) : match.start()]
    return _hide(match) if "curl" in before.rpartition("\n")[2] else match.group()


def _looks_random(value: str) -> bool:
    inside = value[1:]
    is_mixed_case = not (inside.islower() or inside.isupper() or "-" in inside or "_" in inside)
    return bool(_MIXED.match(value)) or value.endswith("=") or (len(value) >= 12 and is_mixed_case)


def _hide_named(match: re.Match[str]) -> str:
    value = match["quoted"] or match["plain"]
    if len(value) < 6 or _PLACEHOLDER.fullmatch(value) or not _is_secret(match, value):
        return match.group()
    return f"{match.group().removesuffix(value)}{MARK}"


def _is_secret(match: re.Match[str], value: str) -> bool:
    if match.re is _FLAG:
        return not value.isalpha()
    name = match["name"].lower()
    if name in ("passphrase", "pwd"):
        return name == "passphrase" or not value.startswith(("/", "~"))
    certain = name.startswith("pass")
    if match["quote"]:
        return not _SPACE.search(value) and (certain or bool(_MIXED.match(value)))
    if match["how"] == "=" and match["name"].isupper():
        return True  # as in a `.env` file
    if _CODE.fullmatch(value):
        return False
    if certain:
        return not value.isalpha() and not ("_" in value and _NAME.fullmatch(value))
    return bool(_MIXED.match(value)) and not _NAME.fullmatch(value)


_PAIR_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (("@",), _USERINFO, _hide),
    (("authorization",), _HEADER, _hide_unless_a_word),
    (("bearer", "basic"), _SCHEME, _hide_if_random),
    (("cookie",), _COOKIE, _hide),
    (("login",), _LOGIN, _hide),
    (("curl",), _USER, _hide_after_curl),
    (_PAIR_WORDS, _QUERY, _hide),
    (_PAIR_WORDS, _FLAG, _hide_named),
    (_PAIR_WORDS, _PAIR, _hide_named),
)
"""Words of which one occurs in every match of the pattern, the pattern, and what replaces a match."""


def _without_private_keys(text: str) -> str:
    """Hide each private key from its first line to its last; one that is cut off, as far as it looks like a key."""
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


# Escapes

_LAYERS = 3
"""How deep escapes of different kinds may nest."""
# The first letter is matched separately, which is faster. Repeated escapes of one kind, as in `&amp;#115;`, `%2573` and
# `\\u0073`, are one layer.
_ESCAPE = re.compile(
    r"[&%\\](?:"
    r"(?<=&)(?:amp;){0,8}(?:#(?:[xX][0-9A-Fa-f]{1,8}|[0-9]{1,9})|[A-Za-z]{2,31}(?=;));?"
    r"|(?<=%)(?:25){0,8}(?:u[0-9A-Fa-f]{4}|[0-9A-Fa-f]{2})"
    r"|(?<=(?<!\\)\\)\\*+(?:u[0-9A-Fa-f]{4}|u\{[0-9A-Fa-f]{1,8}\}|x[0-9A-Fa-f]{2}|U[0-9A-Fa-f]{8}|[0-3][0-7]{2}))"
)
_STARTS = "&%\\"
_IN_KEYS = frozenset(("", *"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-+/=.:~"))
_LINE = "[A-Za-z0-9+/_-]{56}"
_WRAP = re.compile(rf"(?:\n(?<={_LINE}\n)|\r\n(?<={_LINE}\r\n)|\\(?<={_LINE}\\)\\*+(?:r\\++)?n)(?={_LINE[:-4]})")
"""A line break inside base64 or hex."""
Span = tuple[int, int]
Find = Callable[[str], Iterable[Span]]


def without_escaped(text: str, find: Find, looks_like: Find = lambda _: ()) -> str:
    """Return `text` without what is found in it once its escapes are decoded; otherwise unchanged.

    `find` also gets the text with wrapped base64 joined; `looks_like` only one in which an escape is a letter of keys.
    """
    spans = _spans(text, find, looks_like, _LAYERS)
    unwrapped = _WRAP.sub("", text)
    if len(unwrapped) < len(text):
        spans += _where(text, _WRAP, [*find(unwrapped)], lambda _: "")
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if start >= at:
            parts += (text[at:start], MARK)
        at = max(at, end)
    return "".join(parts) + text[at:]


def _spans(text: str, find: Find, looks_like: Find, layers: int) -> list[Span]:
    """Return the spans in `text` itself of what is found once its escapes are decoded."""
    undone: set[str] = set()

    def undo(match: re.Match[str]) -> str:
        undone.add(letter := _letter(match.group()))
        return letter

    if not layers or not any(start in text for start in _STARTS):
        return []
    plain = _ESCAPE.sub(undo, text)
    if not undone:
        return []
    found = [*find(plain)]
    if undone & _IN_KEYS:
        found += looks_like(plain)
    if not undone.isdisjoint(_STARTS):
        found += _spans(plain, find, looks_like, layers - 1)
    return _where(text, _ESCAPE, found, _letter)


def _where(text: str, pattern: re.Pattern[str], spans: list[Span], undo: Callable[[str], str]) -> list[Span]:
    """Map spans of the decoded text to the escaped one."""
    begins, shifts = [0], [0]
    """Where each escape's letter is in the decoded text, and how much longer `text` is after it."""
    for match in pattern.finditer(text):
        letter = undo(match.group())
        begins.append(match.start() - shifts[-1])
        shifts.append(shifts[-1] + len(match.group()) - len(letter))

    def at(place: int) -> int:
        """Return where a letter of the decoded text begins in `text`: that of an escape, where the escape begins."""
        last = bisect_right(begins, place) - 1
        return place + (shifts[last - 1] if last and begins[last] == place else shifts[last])

    return [(at(start), at(end)) for start, end in spans]


@lru_cache(8192)
def _letter(escape: str) -> str:
    """Return the character an escape stands for."""
    first, word = escape[0], escape.lstrip(_STARTS).removesuffix(";")
    if first == "&":
        word = word.replace("amp;", "")
        if not word.startswith("#"):
            from html import unescape

            return bare(unescape(f"&{word};"))
        base = 16 if word[1] in "xX" else 10
    elif first == "%":
        word, base = word if word.startswith("u") else word[-2:], 16
    else:
        base = 16 if word[0] in "uUx" else 8
    code = int(word.strip("#uUxX{}"), base)
    # Invisible characters must not hide a secret; an invalid code stays as it is.
    return bare(chr(code)) if code < 0x110000 else escape
