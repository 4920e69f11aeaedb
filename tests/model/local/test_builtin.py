"""A model that sees to itself: started on demand, shared, and gone with the last who wanted it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import anyio
import msgspec
import pytest
from tests.model.local.process_wait import PATIENCE_S, until

from pinfold.events import Reply, Request, RequestFailed, UserMessage
from pinfold.model.errors import UnknownModel
from pinfold.model.local.builtin import BuiltinModel, SeededLayer
from pinfold.model.local.files import is_held
from pinfold.model.local.model_host import Host, Spec, cores

pytestmark = pytest.mark.integration

USER = """
import sys, anyio
from pathlib import Path
from pinfold.model.local.model_host import Host, Spec
async def main():
    spec = Spec(model=Path(sys.argv[1]), alias="small", context=512, runtime=Path(sys.argv[2]), linger_s=float(sys.argv[4]))
    served = await Host(spec, Path(sys.argv[3])).ready()
    print(served.pid, flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
anyio.run(main)
"""


def asked(text: str = "Count to ten.", **settings: Any) -> Request:
    settings = {"temperature": 0, "max_tokens": 12, **settings}
    return Request(system="You are brief.", messages=(UserMessage(text=text),), settings=settings)


@pytest.fixture
def state(tmp_path: Path) -> Generator[Path]:
    """A state folder; what still runs for it is ended with the test."""
    folder = tmp_path / "xdg" / "state" / "pinfold"
    yield folder
    for said in folder.glob("models/*/server.json"):
        if is_held(said.with_name("server.lock")):
            os.kill(json.loads(said.read_text())["pid"], signal.SIGKILL)


@pytest.fixture
def model(data: Path, state: Path) -> BuiltinModel:
    return BuiltinModel(name="smollm2", folder=data, state=state, uv=None, notice=print, linger_s=0.0)


def record(state: Path) -> Path:
    (said,) = state.glob("models/*/server.json")
    return said


def served_in(state: Path) -> dict[str, Any]:
    return json.loads(record(state).read_text())


def pid_of(state: Path) -> int:
    return served_in(state)["pid"]


def rights(path: Path) -> int:
    return path.stat().st_mode & 0o777


def leads_to(pid: int, name: str) -> str:
    return str(Path(f"/proc/{pid}/{name}").readlink())


def beginning(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(4_000_000)


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


def rewrite(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_bytes().decode()


def is_gone(state: Path) -> bool:
    return not any(map(is_held, state.glob("models/*/server.lock")))


def is_stopped(pid: int) -> bool:
    """True if every thread is stopped."""
    states = [(task / "stat").read_text().rpartition(") ")[2][0] for task in Path(f"/proc/{pid}/task").iterdir()]
    return set(states) == {"T"}


async def reply_of(model: BuiltinModel, request: Request) -> Reply:
    async with aclosing(model.stream(request)) as pieces:
        got = [piece async for piece in pieces]
    assert isinstance(got[-1], Reply)
    assert "".join(piece for piece in got if isinstance(piece, str)) == got[-1].text
    return got[-1]


@pytest.mark.slow
async def test_what_to_expect_is_said_once_with_a_pace_that_was_measured(model: BuiltinModel, state: Path) -> None:
    began = time.monotonic()
    first = await reply_of(model, asked("Tell a long story of herons.", max_tokens=24))
    took_s = time.monotonic() - began
    (said,) = first.notices
    reads, writes = (int(number.replace(",", "")) for number in re.findall(r"about ([\d,]+)", said))
    # No slower than if all of the time had gone into it.
    assert reads >= int(first.usage.input_tokens / took_s)
    assert writes >= int(first.usage.output_tokens / took_s)
    assert "pinfold model list" in said
    assert (await reply_of(model, asked("Tell another long story.", max_tokens=24))).notices == ()
    (state / "told-builtin").unlink()
    assert (await reply_of(model, asked("Say hi.", max_tokens=2))).notices == ()  # too little to tell
    await model.aclose()


async def test_it_answers_in_pieces_for_nothing_and_remembers_the_beginning(model: BuiltinModel, state: Path) -> None:
    first = await reply_of(model, asked())
    assert first.text
    assert first.cost == 0.0
    assert first.usage.output_tokens > 0
    assert first.usage.cached_tokens == 0
    second = await reply_of(model, asked())
    assert second.text == first.text
    assert second.usage.cached_tokens >= first.usage.input_tokens - 1
    assert model.context == 4096
    await model.aclose()
    await until(lambda: is_gone(state))
    with pytest.raises(ValueError, match="not enough values"):
        record(state)


@pytest.mark.slow
async def test_a_conversation_that_had_to_make_room_is_read_again_from_memory(model: BuiltinModel) -> None:
    long = "Here is a story. " + "The heron stood still. " * 12
    first = await reply_of(model, asked(long))
    await reply_of(model, asked("And now for something else: " + "a fish swam by. " * 12))
    again = await reply_of(model, asked(long))
    assert again.usage.cached_tokens >= first.usage.input_tokens - 1
    await model.aclose()


async def test_where_it_is_and_its_key_are_for_this_user_alone(model: BuiltinModel, state: Path) -> None:
    import httpx2

    await model.warm()
    assert (rights(record(state)), rights(record(state).parent)) == (0o600, 0o700)
    served = served_in(state)
    assert served["url"].startswith("http://127.0.0.1:")
    async with httpx2.AsyncClient(trust_env=False) as http:
        url = f"{served['url']}/v1/models"
        assert (await http.get(url)).status_code == 401
        right = {"Authorization": f"Bearer {served['key']}"}
        assert (await http.get(url, headers=right)).status_code == 200
    assert served["key"] not in proc(served["pid"], "cmdline") + proc(served["pid"], "environ")
    await model.aclose()


async def test_it_holds_nothing_of_whoever_started_it(
    model: BuiltinModel, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    await model.warm()
    pid = pid_of(state)
    os.close(writing)
    assert os.read(reading, 1) == b""  # nobody else has the other end
    os.close(reading)
    assert os.getsid(pid) != os.getsid(0)
    assert "sk-of-the-user" not in proc(pid, "environ")
    assert (leads_to(pid, "cwd"), leads_to(pid, "fd/0")) == ("/", "/dev/null")
    parent = proc(pid, "stat").rpartition(")")[2].split()[1]
    assert int(parent) != os.getpid()  # nobody has to bury it
    await model.aclose()


async def test_killed_in_mid_reply_it_fails_so_that_it_is_tried_again_and_then_works(
    model: BuiltinModel, state: Path
) -> None:
    await model.warm()
    first = pid_of(state)

    async def killed_after_the_first_piece() -> None:
        async with aclosing(model.stream(asked(max_tokens=2000, ignore_eos=True))) as pieces:
            async for _ in pieces:
                os.kill(first, signal.SIGKILL)
                await until(lambda: is_gone(state))

    with pytest.raises(RequestFailed, match="the process that runs smollm2 ended") as caught:
        await killed_after_the_first_piece()
    assert caught.value.retryable
    assert (await reply_of(model, asked())).text
    assert pid_of(state) != first
    await model.aclose()


async def test_killed_between_two_requests_it_is_started_again_unnoticed(model: BuiltinModel, state: Path) -> None:
    await model.warm()
    os.kill(pid_of(state), signal.SIGKILL)
    await until(lambda: is_gone(state))
    assert (await reply_of(model, asked())).text
    await model.aclose()


async def test_one_that_does_not_answer_any_more_is_replaced(small: Path, llama: Path, state: Path) -> None:
    host = Host(_spec(small, llama), state, answer_s=1.0)
    first = await host.ready()
    os.kill(first.pid, signal.SIGSTOP)
    await until(lambda: is_stopped(first.pid))  # on a busy machine its threads go on for a moment
    second = await host.ready()
    assert second.pid != first.pid
    host.release()


@pytest.mark.slow
async def test_a_record_whose_process_is_gone_is_not_believed(small: Path, llama: Path, state: Path) -> None:
    host = Host(_spec(small, llama), state)
    first = await host.ready()
    said, old = record(state), served_in(state)
    os.kill(first.pid, signal.SIGKILL)
    await until(lambda: is_gone(state))
    rewrite(said, {**old, "pid": os.getpid()})
    assert (await host.ready()).pid not in (first.pid, os.getpid())
    host.release()


def _spec(small: Path, llama: Path, *, idle_s: float = 300.0, linger_s: float = 0.0) -> Spec:
    return Spec(model=small, alias="small", context=512, runtime=llama, idle_s=idle_s, linger_s=linger_s)


def user(small: Path, llama: Path, state: Path, linger_s: float = 0.0) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", USER, small, llama, state, str(linger_s)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def served_by(process: subprocess.Popen[str]) -> int:
    assert process.stdout
    return int(process.stdout.readline())


def leave(process: subprocess.Popen[str], how: int) -> None:
    process.send_signal(how)
    process.communicate(timeout=PATIENCE_S)


async def test_everybody_shares_one_and_it_ends_with_the_last_of_them_killed_or_not(
    small: Path, llama: Path, state: Path
) -> None:
    users = [user(small, llama, state) for _ in range(3)]
    pids = {await anyio.to_thread.run_sync(served_by, process) for process in users}
    assert len(pids) == 1
    leave(users[0], signal.SIGKILL)
    leave(users[1], signal.SIGTERM)
    host = Host(_spec(small, llama), state)
    assert {(await host.ready()).pid} == pids
    host.release()
    assert not is_gone(state)
    leave(users[2], signal.SIGKILL)
    await until(lambda: is_gone(state))


@pytest.mark.slow
async def test_whoever_started_it_may_be_interrupted_and_it_goes_on_for_others(
    small: Path, llama: Path, state: Path
) -> None:
    starter = user(small, llama, state)
    pid = await anyio.to_thread.run_sync(served_by, starter)
    other = user(small, llama, state)
    assert await anyio.to_thread.run_sync(served_by, other) == pid
    leave(starter, signal.SIGINT)
    third = Host(_spec(small, llama), state)
    assert (await third.ready()).pid == pid
    third.release()
    leave(other, signal.SIGKILL)
    await until(lambda: is_gone(state))


async def test_whoever_comes_soon_enough_finds_it_warm(small: Path, llama: Path, state: Path) -> None:
    first = user(small, llama, state, linger_s=60)
    pid = await anyio.to_thread.run_sync(served_by, first)
    leave(first, signal.SIGKILL)
    host = Host(_spec(small, llama, linger_s=60.0), state)
    assert (await host.ready()).pid == pid
    host.release()


async def test_unused_for_a_while_it_lets_go_of_its_memory_and_still_answers(
    small: Path, llama: Path, state: Path
) -> None:
    host = Host(_spec(small, llama, idle_s=1.0), state)
    served = await host.ready()
    loaded = _resident(served.pid)
    await until(lambda: _resident(served.pid) < loaded / 2)
    assert (await host.ready()).context == 512
    host.release()


def _resident(pid: int) -> int:
    return int(proc(pid, "status").partition("VmRSS:")[2].split()[0])


async def test_its_log_stays_small(small: Path, llama: Path, state: Path) -> None:
    host = Host(_spec(small, llama), state)
    await host.ready()
    with host.log.open("ab") as log:
        log.write(b"a line that means nothing\n" * 60_000)
        log.write(b"the last line\n")
    await until(lambda: host.log.stat().st_size < 1 << 20)
    assert host.log.read_bytes().count(b"the last line\n") == 1
    host.release()


@pytest.mark.parametrize(
    ("content", "words"), [(b"hello", "expected 'GGUF'"), (None, "model is corrupted or incomplete")]
)
async def test_what_cannot_be_run_is_told_in_one_line_and_not_tried_again(
    small: Path, llama: Path, state: Path, tmp_path: Path, content: bytes | None, words: str
) -> None:
    bad = write(tmp_path / "bad.gguf", beginning(small) if content is None else content)
    host = Host(_spec(bad, llama), state)
    with pytest.raises(RequestFailed, match=words) as caught:
        await host.ready()
    assert not caught.value.retryable
    assert str(host.log) in str(caught.value)
    assert "\n" not in str(caught.value)
    host.release()


def test_a_name_that_means_nothing_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownModel):
        BuiltinModel(name="heron", folder=tmp_path, state=tmp_path, uv=None, notice=print)


def test_there_is_at_least_one_core_and_no_more_than_the_machine_has() -> None:
    assert 1 <= cores() <= (os.cpu_count() or 1)


@pytest.mark.slow
async def test_a_seed_gives_the_same_reply_again_also_where_the_prompt_was_read_before(model: BuiltinModel) -> None:
    repeatable = SeededLayer(model)

    async def say(text: str = "Tell me a story about a heron.", **settings: Any) -> str:
        request = asked(text, temperature=1.0, max_tokens=8, **settings)
        request = msgspec.structs.replace(request, system="You write short stories about animals. " * 3)
        [reply] = [piece async for piece in repeatable.stream(request) if isinstance(piece, Reply)]
        return reply.text

    async with aclosing(repeatable):
        first = await say(seed=7)
        assert await say(seed=7) == first
        await say("Tell me of a bill.")
        assert await say(seed=7) == first
        assert await say(seed=8) != first
