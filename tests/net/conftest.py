"""One world a test: an allowed place, forbidden ones, and where the proxy's socket goes."""

from __future__ import annotations

import shutil
import ssl
import subprocess
import tempfile
from collections.abc import AsyncGenerator, Callable, Generator
from pathlib import Path

import pytest
from tests.net.listeners import World, world


@pytest.fixture
def folder() -> Generator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


@pytest.fixture
async def places() -> AsyncGenerator[World]:
    async with world() as made:
        yield made


@pytest.fixture
def certified(tmp_path: Path) -> Callable[[str], tuple[ssl.SSLContext, ssl.SSLContext]]:
    """A server's and a client's side of TLS, for a host of this name."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed")

    def make(name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
        key, cert = tmp_path / "key.pem", tmp_path / "cert.pem"
        subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"),
                *("-nodes", "-keyout", str(key), "-out", str(cert), "-days", "2", *subject),
            ],
            check=True,
            capture_output=True,
        )
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(cert, key)
        return server, ssl.create_default_context(cafile=str(cert))

    return make
