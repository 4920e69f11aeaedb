"""Which files are secrets by their name: no session may read them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator, Sequence


class NamePatterns:
    """Each pattern is matched with the last parts of a path, at any depth; `*` stays within one part."""

    def __init__(self, patterns: Sequence[str], *, any_case: bool = False) -> None:
        lasts = {pattern.lower().rpartition("/")[2] for pattern in patterns}
        self.exact = frozenset(last for last in lasts if "*" not in last)
        self.endings = frozenset(last[last.rfind(".") :] for last in lasts if last.startswith("*"))
        starts = {last.partition("*")[0] for last in lasts if "*" in last} - {""}
        self.length = min(map(len, starts), default=0)
        self.starts = frozenset(start[: self.length] for start in starts)
        self._patterns = patterns
        self._flags = re.DOTALL | (re.IGNORECASE if any_case else 0)

    def may_end(self, name: str) -> bool:
        """False if no path that ends with this name is matched by all of a pattern."""
        name = name.lower()
        return name in self.exact or name[name.rfind(".") :] in self.endings or name[: self.length] in self.starts

    def find(self, path: str) -> Iterator[tuple[int, str]]:
        """Each part of the path, from its beginning, that ends as a pattern says, with the number of that pattern."""
        end = 0
        for name in path.split("/"):
            end += len(name) + 1
            if self.may_end(name) and (found := self._match_end(path[: end - 1])):
                yield (found.lastindex or 1) - 1, found[0]

    @functools.cached_property
    def _match_end(self) -> Callable[[str], re.Match[str] | None]:
        each = "|".join(f"({re.escape(pattern)})" for pattern in self._patterns).replace(r"\*", "[^/]*")
        return re.compile(rf"(?:.*?/)??(?:{each or '(?!)'})", self._flags).fullmatch


NAMES: Sequence[str] = (  # noqa: SIM905 - a line each would be sixty
    ".env .env.* *.pem *.key *.p8 *.p12 *.pfx *.pkcs12 *.jks *.keystore *.kdb *.kdbx *.ppk *.agekey *.ovpn "
    "id_rsa* id_ed25519* id_ecdsa* id_dsa* "
    ".netrc _netrc .git-credentials .npmrc .pypirc .gem_credentials .sentryclirc "
    ".pgpass pgpass.conf .my.cnf .mylogin.cnf .htpasswd .vault-token .smbcredentials .msmtprc .fetchmailrc "
    ".boto .s3cfg .dockercfg .databrickscfg .rclone.conf rclone.conf sftp-config.json kubeconfig kaggle.json "
    "*.tfstate *.tfstate*.backup credentials.json application_default_credentials.json client_secret*.json "
    "service-account*.json service_account*.json secrets.y*ml "
    ".aws/credentials .kube/config .docker/config.json .config/gcloud .config/op .azure/accesstokens.json "
    ".azure/msal_token_cache.json .azure/msal_token_cache.bin gh/hosts.yml .gem/credentials .cargo/credentials "
    ".cargo/credentials.toml .terraform.d/credentials.tfrc.json .snowsql/config .huggingface/token"
).split()
"""Case does not matter. A folder of such a name hides all that is in it."""
_SHOWN = re.compile(r"(?is)(?:.*/)?\.env\.(?:example|sample|template|dist)").fullmatch
_BY_ENDING = tuple(name for name in NAMES if name.startswith("*"))
_INSTALLED = re.compile(r"(?:^|/)(?:site-packages|dist-packages|node_modules)(?:/|\Z)")
PATTERNS = NamePatterns(NAMES, any_case=True)


def is_masked(path: str) -> bool:
    """Whether a path, relative to the workspace, is a secret's, or lies in a folder that is."""
    for number, thing in PATTERNS.find(path):
        # Packages bring public certificates: without `certifi/cacert.pem` they reach no server.
        is_public = NAMES[number] in _BY_ENDING and is_installed(thing)
        if not is_public and not _SHOWN(thing):
            return True
    return False


def is_installed(path: str) -> bool:
    """Whether it lies where packages are installed."""
    return _INSTALLED.search(path) is not None


MOST = 200
"""Characters of one name."""


def format_name(name: str) -> str:
    """In one line, without what could steer a terminal, and not endless."""
    cut = name if len(name) <= MOST else f"{name[:MOST]}..."
    return "".join(it if it.isprintable() else it.encode("unicode_escape").decode() for it in cut)
