"""What the host itself reads and writes in a workspace, attacked by path and by link: 150 paths and 10,000 swaps.

    ./.venv/bin/python bench/paths.py [--swaps N]

The host touches files of a workspace in three places: the files that steer the agent (read, and written once the user has
said yes), what a folder would have it obey, and `put` and `get` of a session. A secret lies outside; nothing may read or
change it. As control the same swaps are made against plain `open`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pinfold.app.session.protected_files import apply_edit, find_protected_file, plan_edit
from pinfold.app.trust.project_files import read_project_files
from pinfold.events import CallTool
from pinfold.sandbox import FileRefused, SandboxError, open_session
from pinfold.sandbox.guards.protected_files import read_protected_file, write_protected_file
from pinfold.tools import BadCall

SECRET = b"the secret outside"
STEERING = (
    "AGENTS.md",
    "CLAUDE.md",
    "pinfold.toml",
    ".mcp.json",
    ".agents/a.md",
    ".git/config",
    ".git/hooks/pre-commit",
)
MARK = b"written by the host"


@dataclass(frozen=True, slots=True)
class Scene:
    workspace: Path
    outside: Path

    @classmethod
    def made(cls, top: Path) -> Scene:
        scene = cls(top / "workspace", top / "outside")
        for folder in (scene.workspace / ".agents", scene.workspace / ".git/hooks", scene.outside / "hooks"):
            folder.mkdir(parents=True)
        for name in ("secret", "AGENTS.md", "a.md", "config", "hooks/pre-commit", "pre-commit"):
            (scene.outside / name).write_bytes(SECRET)
        for name in STEERING:
            (scene.workspace / name).write_bytes(b"inside")
        return scene

    def is_whole(self) -> bool:
        """Everything outside is as it was, and nothing was added."""
        found = {path.relative_to(self.outside) for path in self.outside.rglob("*") if path.is_file()}
        same = all((self.outside / name).read_bytes() == SECRET for name in found)
        return same and len(found) == 6


def paths(scene: Scene) -> Iterator[str]:
    """Ways to say `outside/secret`."""
    up = "../outside/secret"
    real = str(scene.outside / "secret")
    yield from (
        up,
        real,
        f"/{real}",
        f"//{real}",
        f"./{up}",
        f"{scene.workspace}/{up}",
        f"file://{real}",
        "~/secret",
        "~root/x",
    )
    yield from (f"{'../' * depth}{real.lstrip('/')}" for depth in range(1, 24))
    for name in STEERING:
        depth = name.count("/") + 1
        yield f"{name}/{'../' * (depth + 1)}outside/secret"
        yield f"{Path(name).parent}/{'../' * (depth + 1)}outside/secret"
        yield f"{name}\0{up}"
        yield f"{name}\n{up}"
        yield f"{up}\0{name}"
        yield f"{name}/"
        yield f"{name}/."
        yield f"{name}//{up}"
        yield f"{name}%00{up}"
        yield name.upper()
        yield f"/proc/self/cwd/{name}"
        yield f"/proc/self/root{real}"
        yield f"./././{name}/../../{'../' * depth}outside/secret"
    yield from (f"/proc/self/fd/{fd}" for fd in range(3, 12))
    yield from (f"/proc/{os.getpid()}/root{real}", "/dev/fd/0", "/etc/passwd", "/etc/shadow", "\\..\\outside\\secret")
    yield from ("..%2foutside%2fsecret", "%2e%2e/outside/secret", "..;/outside/secret", "..\u2215outside\u2215secret")
    yield from (
        ".../outside/secret",
        "....//outside/secret",
        "..//outside//secret",
        ".. /outside/secret",
        "link/secret",
    )
    yield from (
        ".agents/link/secret",
        "AGENTS.md/link",
        "a" * 5000,
        "/".join(["a"] * 200),
        "",
        ".",
        "..",
        "/",
        "\udc80x",
    )


def _links(scene: Scene) -> None:
    (scene.workspace / "link").symlink_to(scene.outside)
    (scene.workspace / ".agents/link").symlink_to(scene.outside)
    (scene.workspace / ".agents/secret").symlink_to(scene.outside / "secret")


async def by_path(top: Path) -> dict[str, int]:
    scene = Scene.made(top)
    _links(scene)
    tried = leaked = 0
    for path in paths(scene):
        for tool, args in (
            ("write_file", {"content": MARK.decode()}),
            ("edit_file", {"old": SECRET.decode(), "new": "x"}),
        ):
            action = CallTool(tool=tool, args={"path": path, **args})
            tried += 1
            with contextlib.suppress(BadCall, OSError, ValueError):
                if find_protected_file(action, scene.workspace):
                    leaked += SECRET in (plan_edit(action, scene.workspace).before or b"")
                    apply_edit(action, scene.workspace)
            leaked += not scene.is_whole()
    async with open_session(scene.workspace, "namespaces") as session:
        for path in paths(scene):
            tried += 2
            with contextlib.suppress(FileRefused, SandboxError, ValueError):
                leaked += SECRET in await session.get(path)
            with contextlib.suppress(FileRefused, SandboxError, ValueError):
                await session.put(path, MARK)
            leaked += not scene.is_whole()
        tried += 1
        await session.put("fine.txt", MARK)
        works = (scene.workspace / "fine.txt").read_bytes() == MARK and await session.get("fine.txt") == MARK
    leaked += any(
        SECRET in (read_project_files(scene.workspace).get(name) or b"")
        for name in (".agents/secret", ".agents/link/secret")
    )
    edit = CallTool(tool="write_file", args={"path": "AGENTS.md", "content": MARK.decode()})
    apply_edit(edit, scene.workspace)
    works = works and (scene.workspace / "AGENTS.md").read_bytes() == MARK
    return {"paths": tried, "leaked": leaked, "control_works": works}


def _swap(scene: Scene) -> None:
    """Files and folders become links to what is outside, and files again, as fast as they can."""
    places = [
        (scene.workspace / "AGENTS.md", scene.outside / "secret"),
        (scene.workspace / ".agents/a.md", scene.outside / "secret"),
        (scene.workspace / ".agents", scene.outside),
        (scene.workspace / ".git/hooks", scene.outside / "hooks"),
    ]

    while True:
        for place, target in places:
            aside = place.with_name(f"{place.name}.aside")
            with contextlib.suppress(OSError):
                place.rename(aside)
                place.symlink_to(target)
                place.unlink()
                aside.rename(place)


def host_step(scene: Scene, number: int) -> bool:
    """One thing the host does; whether it got at what is outside."""
    name = ("AGENTS.md", ".agents/a.md", ".git/hooks/pre-commit")[number % 3]
    got = b""
    with contextlib.suppress(FileRefused, OSError):
        if number % 2:
            got = read_protected_file(name, scene.workspace) or b""
        else:
            write_protected_file(name, MARK, scene.workspace)
    if number % 7 == 0:
        with contextlib.suppress(OSError):
            found = read_project_files(scene.workspace)
            got += b"".join(found.get(name) or b"" for name in found.digests)
    return SECRET in got


def plain_step(scene: Scene, number: int) -> bool:
    path = scene.workspace / ("AGENTS.md", ".agents/a.md", ".git/hooks/pre-commit")[number % 3]
    with contextlib.suppress(OSError):
        if number % 2:
            return SECRET in path.read_bytes()
        path.write_bytes(MARK)
    return False


def by_swap(top: Path, swaps: int, step: Callable[[Scene, int], bool]) -> dict[str, int]:
    scene = Scene.made(top)
    swapper = get_context("fork").Process(target=_swap, args=(scene,), daemon=True)
    swapper.start()
    read = sum(step(scene, number) for number in range(swaps))
    swapper.kill()
    swapper.join()
    return {"swaps": swaps, "read": read, "wrote": int(not scene.is_whole())}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--swaps", type=int, default=10_000)
    swaps = parser.parse_args().swaps
    with tempfile.TemporaryDirectory() as folder:
        top = Path(folder)
        told = {
            "by_path": asyncio.run(by_path(top / "paths")),
            "by_swap": by_swap(top / "swaps", swaps, host_step),
            "plain_open": by_swap(top / "naive", swaps, plain_step),
        }
    print(json.dumps(told, indent=2))
    held = told["by_path"]["leaked"] + told["by_swap"]["read"] + told["by_swap"]["wrote"] == 0
    control = told["by_path"]["control_works"] and told["plain_open"]["read"] and told["plain_open"]["wrote"]
    return 0 if held and control else 1


if __name__ == "__main__":
    sys.exit(main())
