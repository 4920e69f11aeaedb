"""Which files are secrets by their name: no session may read them."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pinfold.sandbox.guards.name_patterns import NamePatterns

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
