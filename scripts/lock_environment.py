"""Makes the lock of the sandbox's Python environment anew: `.venv/bin/python scripts/lock_environment.py`.

One file for all platforms and for every Python we run on, with a hash for each wheel. With `--keep` what is locked keeps
its version, and only what is missing is added.
"""

import subprocess
import sys

from pinfold.sandbox.environment.store import LOCK, OLDEST, PACKAGES
from pinfold.sandbox.environment.uv import find_uv

HEADER = "# Made by scripts/lock_environment.py; not to be edited.\n"


def main() -> int:
    command = [find_uv(), "pip", "compile", "--quiet", "--universal", "--generate-hashes"]
    command += ["--constraint", LOCK] if "--keep" in sys.argv[1:] else ["--upgrade"]
    command += ["--no-header", "--no-annotate", "--only-binary", ":all:"]
    command += ["--python-version", ".".join(map(str, OLDEST)), "-"]
    done = subprocess.run(command, input="\n".join(PACKAGES), stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        return done.returncode
    LOCK.write_text(HEADER + done.stdout, encoding="utf-8")
    print(f"{LOCK}: {done.stdout.count('==')} packages, {done.stdout.count('--hash')} hashes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
