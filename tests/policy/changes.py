"""Run inside a sandbox: runs each command of cases.json with bash and with sh, and tells which of them changed a file."""

import hashlib
import json
import shutil
import subprocess
from pathlib import Path

PLACE = Path("/tmp/case")
FILES = ("f", "a", "b", "x", "list", "out.txt", "app.log", "src/a.py", "sub/b.txt", "README.md", "f.json")


def fresh() -> None:
    shutil.rmtree(PLACE, ignore_errors=True)
    for name in FILES:
        (PLACE / name).parent.mkdir(parents=True, exist_ok=True)
        (PLACE / name).write_text("one 1 2\ntwo 3 4\n")


def seen() -> dict[str, tuple[int, str]]:
    return {
        str(path): (
            path.lstat().st_mode,
            hashlib.sha1(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in PLACE.rglob("*")
    }


def changes(shell: str, command: str, before: dict[str, tuple[int, str]]) -> bool:
    nowhere = subprocess.DEVNULL
    try:
        subprocess.run(
            [shell, "-c", command],
            cwd=PLACE,
            env={"PATH": "/usr/bin:/bin", "HOME": "/tmp/home", "LANG": "C"},
            stdin=nowhere,
            stdout=nowhere,
            stderr=nowhere,
            timeout=2,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:  # one that waits for more; what it has done by now counts
        pass
    except ValueError:  # no shell takes a NUL
        return False
    return seen() != before


def main() -> None:
    fresh()
    before = seen()
    changed: list[str] = []
    cases = json.loads(Path("cases.json").read_text())
    for command in cases:
        for shell in ("bash", "sh"):
            if changes(shell, command, before):
                changed.append(command)
                fresh()
                before = seen()
    Path("changed.json").write_text(json.dumps({"ran": len(cases), "changed": sorted(set(changed))}))


main()
