"""Secrets in the shapes they have in the wild. Made up at run time: none of them stands in this file."""

from __future__ import annotations

import base64
import random
import string
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from pinfold.text.secret_patterns import KNOWN_PREFIXES

_LETTERS = string.ascii_letters + string.digits
_URL = _LETTERS + "-_"
_HEX = "0123456789abcdef"
_UPPER = string.ascii_uppercase + string.digits
_BASE64 = _LETTERS + "+/"
Some: TypeAlias = Callable[..., str]


@dataclass(frozen=True, slots=True)
class Planted:
    """A line as it could be printed, and the part of it that must not be seen."""

    kind: str
    line: str
    secret: str


def disguised(seed: int = 7) -> tuple[Planted, ...]:
    """Keys that give themselves away, every second letter escaped."""
    ways = ("&#{};", "&#x{:x};", "%{:02x}")
    found: list[Planted] = []
    for number, one in enumerate(one for one in planted(seed) if one.secret.startswith(KNOWN_PREFIXES)):
        way = ways[number % len(ways)]
        secret = "".join(way.format(ord(letter)) if at % 2 else letter for at, letter in enumerate(one.secret))
        found.append(Planted(f"{one.kind}, escaped", f"it is {secret} there", secret))
    return tuple(found)


def planted(seed: int = 7) -> tuple[Planted, ...]:
    """One of each shape; different values for each seed."""
    dice = random.Random(seed)

    def some(length: int, letters: str = _LETTERS) -> str:
        # Never without a digit and a letter: so short a test value could be, a real key is not.
        made = [dice.choice(letters) for _ in range(length)]
        for place, kind in ((1, string.digits), (2, string.ascii_letters)):
            fitting = [letter for letter in letters if letter in kind]
            if fitting and not any(letter in kind for letter in made):
                made[place] = dice.choice(fitting)
        return "".join(made)

    return tuple(
        Planted(kind, line.replace("SECRET", secret), secret)
        for kind, (line, secret) in {**_keys(some), **_in_context(some)}.items()
    )


def _keys(some: Some) -> Mapping[str, tuple[str, str]]:
    """Known by what they look like, wherever they stand."""
    shapes = {
        "openai": "sk-" + some(48),
        "openai project": "sk-proj-" + some(60, _URL),
        "anthropic": "sk-ant-api03-" + some(90, _URL),
        "openrouter": "sk-or-v1-" + some(64, _HEX),
        "google api": "AIza" + some(35, _URL),
        "google oauth": "ya29." + some(60, _URL),
        "google client": "GOCSPX-" + some(28, _URL),
        "github classic": "ghp_" + some(36),
        "github oauth": "gho_" + some(36),
        "github user": "ghu_" + some(36),
        "github server": "ghs_" + some(36),
        "github refresh": "ghr_" + some(36),
        "github fine": "github_pat_" + some(22) + "_" + some(59),
        "gitlab": "glpat-" + some(20, _URL),
        "gitlab runner": "glrt-" + some(20, _URL),
        "aws id": "AKIA" + some(16, _UPPER),
        "aws session id": "ASIA" + some(16, _UPPER),
        "azure client": some(3) + "8Q~" + some(34, _URL),
        "slack bot": "xoxb-" + some(12, string.digits) + "a-" + some(24),
        "slack user": "xoxp-" + some(12) + "-" + some(24),
        "slack app": "xapp-1-" + some(11, _UPPER) + "-" + some(40, _HEX),
        "slack webhook": f"https://hooks.slack.com/services/T{some(8, _UPPER)}/B{some(8, _UPPER)}/{some(24)}",
        "discord webhook": f"https://discord.com/api/webhooks/{some(18, string.digits)}/{some(68, _URL)}",
        "discord bot": "M" + some(25) + "." + some(6) + "." + some(38, _URL),
        "telegram": some(10, string.digits) + ":AA" + some(33, _URL),
        "stripe": "sk_live_" + some(24),
        "stripe restricted": "rk_live_" + some(24),
        "stripe webhook": "whsec_" + some(32),
        "twilio": "SK" + some(32, _HEX),
        "sendgrid": "SG." + some(22, _URL) + "." + some(43, _URL),
        "mailgun": "key-" + some(32, _HEX),
        "mailchimp": some(32, _HEX) + "-us12",
        "npm": "npm_" + some(36),
        "pypi": "pypi-AgEIcHlwaS5vcmc" + some(80, _URL),
        "hugging face": "hf_" + some(34),
        "groq": "gsk_" + some(52),
        "xai": "xai-" + some(80),
        "perplexity": "pplx-" + some(48),
        "replicate": "r8_" + some(37),
        "databricks": "dapi" + some(32, _HEX),
        "digitalocean": "dop_v1_" + some(64, _HEX),
        "docker": "dckr_pat_" + some(27, _URL),
        "shopify": "shpat_" + some(32, _HEX),
        "linear": "lin_api_" + some(40),
        "notion": "ntn_" + some(46),
        "figma": "figd_" + some(40, _URL),
        "grafana": "glsa_" + some(32) + "_" + some(8, _HEX),
        "postman": "PMAK-" + some(24, _HEX) + "-" + some(34, _HEX),
        "vault": "hvs." + some(90, _URL),
        "airtable": "pat" + some(14) + "." + some(64, _HEX),
        "atlassian": "ATATT3xFfGF0" + some(60, _URL),
        "age": "AGE-SECRET-KEY-1" + some(58, _UPPER),
        "jwt": "eyJhbGciOiJIUzI1NiJ9." + "eyJ" + some(40, _URL) + "." + some(43, _URL),
    }
    return {kind: ("the key is SECRET, and more", secret) for kind, secret in shapes.items()}


def _in_context(some: Some) -> Mapping[str, tuple[str, str]]:
    """Known only by what stands around them."""
    pair = base64.b64encode(f"user:{some(16)}".encode()).decode()
    body = "\n".join(some(64, _BASE64) for _ in range(6))
    return {
        "aws secret": ("aws_secret_access_key = SECRET", some(40, _BASE64)),
        "aws secret json": ('{"SecretAccessKey": "SECRET", "Version": 1}', some(40, _BASE64)),
        "azure storage": (
            "DefaultEndpointsProtocol=https;AccountName=herons;AccountKey=SECRET;EndpointSuffix=core.windows.net",
            some(86, _BASE64) + "==",
        ),
        "azure sas": ("https://herons.blob.core.windows.net/c?sv=2024-01-01&sig=SECRET", some(43) + "%3D"),
        "bearer": ("Authorization: Bearer SECRET", some(40)),
        "bearer in json": ('{"headers": {"authorization": "Bearer SECRET"}}', some(40)),
        "basic": ("authorization: Basic SECRET", pair),
        "api key header": ("X-Api-Key: SECRET", some(32, _HEX)),
        "cookie": ("Set-Cookie: session=SECRET; Path=/", some(32)),
        "token in a url": ("GET https://example.org/feed?page=2&access_token=SECRET", some(24)),
        "password in a url": ("postgresql://app:SECRET@db.internal:5432/app", some(14) + "!"),
        "redis": ("redis://:SECRET@cache:6379/0", some(20)),
        "clone url": ("https://oauth2:SECRET@git.example.org/a/b.git", some(20)),
        "env file": ("DB_PASSWORD=SECRET", "correcthorse" + some(3, string.ascii_lowercase + "1")),
        "yaml": ("  password: SECRET", some(12) + "#x"),
        "toml": ('token = "SECRET"', some(32)),
        "json": ('{"client_secret": "SECRET"}', some(32)),
        "json in json": ('"{\\"api_key\\": \\"SECRET\\"}"', some(32)),
        "npmrc": ("//registry.npmjs.org/:_authToken=SECRET", some(36)),
        "netrc": ("machine example.org login heron password SECRET", some(12)),
        "flag": ("mysql --user=root --password=SECRET app", some(12) + "$"),
        "curl": ("curl -s -u heron:SECRET https://example.org/", some(14)),
        "connection string": ("Server=db;User Id=sa;Password=SECRET;Encrypt=true", some(14) + "!"),
        "private key": ("-----BEGIN RSA PRIVATE KEY-----\nSECRET\n-----END RSA PRIVATE KEY-----", body),
        "openssh key": ("-----BEGIN OPENSSH PRIVATE KEY-----\nSECRET\n-----END OPENSSH PRIVATE KEY-----", body[::-1]),
        "key cut off": ("-----BEGIN PRIVATE KEY-----\nSECRET", body.swapcase()),
        "coloured": ("\x1b[1mtoken\x1b[0m=\x1b[32mSECRET\x1b[0m", "ghp_" + some(36)),
    }
