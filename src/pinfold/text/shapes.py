"""What keys look like, by who gives them out. A rule is tried only where its first letters occur, and reads on from there.

Every rule takes linear time: what follows the first letters is one run of one class, or a few runs that begin where no
longer run could have begun.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from pinfold.text.mark import MARK

# Beginning, then what follows it. Only where the beginning is found in ordinary words must it also begin a word.
_DISTINCT = {
    "github_pat_": r"\w{20,}",
    "ghp_": r"\w{20,}",
    "gho_": r"\w{20,}",
    "ghu_": r"\w{20,}",
    "ghs_": r"[\w.-]{20,}",
    "ghr_": r"\w{20,}",
    "glpat-": r"[\w.-]{18,}",
    "gldt-": r"[\w-]{18,}",
    "glrt-": r"[\w.-]{18,}",
    "glptt-": r"[\w-]{18,}",
    "glcbt-": r"[\w-]{18,}",
    "glagent-": r"[\w-]{18,}",
    "gloas-": r"[\w-]{18,}",
    "sk-ant-": r"[\w-]{20,}",
    "AIza": r"[\w-]{30,}",
    "ya29.": r"[\w-]{20,}",
    "GOCSPX-": r"[\w-]{20,}",
    "xoxa-": r"[\w-]{10,}",
    "xoxb-": r"[\w-]{10,}",
    "xoxe.": r"[\w.-]{10,}",
    "xoxe-": r"[\w-]{10,}",
    "xoxo-": r"[\w-]{10,}",
    "xoxp-": r"[\w-]{10,}",
    "xoxr-": r"[\w-]{10,}",
    "xoxs-": r"[\w-]{10,}",
    "xapp-": r"[\w-]{20,}",
    "hooks.slack.com/": r"(?:services|workflows|triggers)/[\w/-]{20,}",
    "/api/webhooks/": r"\d{10,25}/[\w-]{20,}",
    "sk_live_": r"\w{10,}",
    "sk_test_": r"\w{10,}",
    "rk_live_": r"\w{10,}",
    "rk_test_": r"\w{10,}",
    "whsec_": r"[\w+/=]{20,}",
    "npm_": r"[A-Za-z0-9]{30,}",
    "pypi-AgE": r"[\w-]{30,}",
    "api_org_": r"[A-Za-z]{30,}",
    "dop_v1_": r"[a-f0-9]{40,}",
    "doo_v1_": r"[a-f0-9]{40,}",
    "dor_v1_": r"[a-f0-9]{40,}",
    "dckr_pat_": r"[\w-]{20,}",
    "shpat_": r"[A-Fa-f0-9]{30,}",
    "shpss_": r"[A-Fa-f0-9]{30,}",
    "shpca_": r"[A-Fa-f0-9]{30,}",
    "sq0atp-": r"[\w-]{20,}",
    "sq0csp-": r"[\w-]{20,}",
    "lin_api_": r"[A-Za-z0-9]{30,}",
    "figd_": r"[\w-]{30,}",
    "glsa_": r"[A-Za-z0-9]{30,}_[A-Fa-f0-9]{8}",
    "glc_eyJ": r"[A-Za-z0-9+/=]{30,}",
    "PMAK-": r"[a-f0-9]{20,}-[a-f0-9]{30,}",
    "NRAK-": r"[A-Z0-9]{20,}",
    "sntrys_": r"[\w+/=-]{30,}",
    "dp.pt.": r"[A-Za-z0-9]{30,}",
    "hvs.": r"[\w-]{20,}",
    "hvb.": r"[\w-]{20,}",
    ".atlasv1.": r"[\w-]{40,}",
    "AGE-SECRET-KEY-1": r"[A-Z0-9]{40,}",
    "nfp_": r"[A-Za-z0-9]{30,}",
    "sbp_": r"[a-f0-9]{30,}",
    "pscale_tkn_": r"[\w.=-]{20,}",
    "pscale_pw_": r"[\w.=-]{20,}",
    "ATATT3": r"[\w=-]{40,}",
    "tskey-": r"[a-z]{3,12}-[\w-]{15,}",
    "CCIPAT_": r"\w{20,}",
    "rubygems_": r"[a-f0-9]{30,}",
    "CLOJARS_": r"[a-f0-9]{40,}",
    "ops_eyJ": r"[\w=-]{40,}",
    "LTAI": r"[A-Za-z0-9]{12,20}\b",
    "gsk_": r"[A-Za-z0-9]{30,}",
    "pplx-": r"[A-Za-z0-9]{30,}",
    "HRKU-": r"[\w-]{30,}",
}
_WORDS = {
    "sk-": r"(?=[A-Za-z_-]*\d)[\w-]{20,}",
    "hf_": r"[A-Za-z0-9]{20,}",
    "xai-": r"[A-Za-z0-9]{40,}",
    "r8_": r"[A-Za-z0-9]{30,}",
    "fw_": r"[A-Za-z0-9]{20,}",
    "ntn_": r"[A-Za-z0-9]{30,}",
    "secret_": r"[A-Za-z0-9]{43}\b",
    "key-": r"[a-f0-9]{32}\b",
    "dapi": r"[a-f0-9]{32}(?:-\d)?\b",
    "SK": r"[a-f0-9]{32}\b",
    "AKIA": r"[0-9A-Z]{16}\b",
    "ASIA": r"[0-9A-Z]{16}\b",
    "ABIA": r"[0-9A-Z]{16}\b",
    "SG.": r"[\w-]{16,32}\.[\w-]{20,}",
    "eyJ": r"[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}",
    "sl.": r"[\w-]{100,}",
    "EAA": r"[A-Za-z0-9]{60,}",
}
# Whole patterns, for keys that do not begin with anything.
_INSIDE = {
    "-us": r"\b[a-f0-9]{32}-us\d{1,2}\b",
    "Q~": r"(?<![\w.~-])[\w.~-]{3}\dQ~[\w.~-]{31,34}(?![\w.~-])",
    ":AA": r"(?<!\d)\d{8,10}:AA[\w-]{32,34}(?![\w-])",
    ".": r"(?<![\w.-])(?:[MNO][\w-]{23,27}\.[\w-]{6}\.[\w-]{27,38}(?![\w-])|pat[A-Za-z0-9]{14}\.[a-f0-9]{64}\b)",
}


def without_shapes(text: str) -> str:
    """`text` without what looks like a key."""
    for needle, pattern in _PATTERNS.items():
        if needle in text:
            text = _compiled(pattern).sub(MARK, text)
    return text


def shapes_in(text: str) -> Iterator[tuple[int, int]]:
    """Where in `text` something looks like a key."""
    for needle, pattern in _PATTERNS.items():
        if needle in text:
            yield from (match.span() for match in _compiled(pattern).finditer(text))


def _patterns() -> Iterator[tuple[str, str]]:
    """Each by letters that occur in every text it matches."""
    for beginning, rest in _DISTINCT.items():
        yield beginning, re.escape(beginning) + rest
    for beginning, rest in _WORDS.items():
        here = re.escape(beginning)
        yield beginning, rf"{here}(?<![\w-]{here}){rest}"
    yield from _INSIDE.items()


_PATTERNS = dict(_patterns())
_compiled = cache(re.compile)
KNOWN_BEGINNINGS = (*_DISTINCT, *_WORDS)
