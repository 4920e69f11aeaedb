"""Every place where the command line shows what somebody else wrote, fed with texts of our choosing."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from bench.sink_suite.model_server import models_served
from bench.sink_suite.terminal import Scene, on_a_terminal

_LOCAL = ("--sandbox", "unsafe-local")
_MARK = re.compile(r"@@(\d+)@@")
_BATCH = 10
"""Texts in one cell: what is shown of a cell is bounded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What came out, and how many of the texts were in it."""

    text: str
    examined: int


Sink: TypeAlias = Callable[[Scene, Sequence[str]], str]


def sent(sink: Sink, scene: Scene, texts: Sequence[str]) -> Seen:
    shown = sink(scene, [f"@@{number}@@ {text}" for number, text in enumerate(texts)])
    return Seen(text=shown, examined=len(set(_MARK.findall(shown))))


def _script(scene: Scene, replies: Sequence[Mapping[str, object]]) -> str:
    path = scene.folder / "script.jsonl"
    path.write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
    return f"scripted:{path}"


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(texts), _BATCH):
        yield texts[start : start + _BATCH]


def _cells(scene: Scene, codes: Sequence[str]) -> str:
    # In one reply: a turn whose steps keep failing in the same way is ended.
    calls = [{"calls": [{"tool": "python", "args": {"code": code}} for code in codes]}]
    model = _script(scene, [*calls, {"text": "done"}])
    return on_a_terminal(scene, [["run", *_LOCAL, "--max-steps", "10000", "--model", model, "go"]])


def answer(scene: Scene, texts: Sequence[str]) -> str:
    model = _script(scene, [{"text": "\n".join(texts)}])
    return on_a_terminal(scene, [["run", *_LOCAL, "--model", model, "go"]])


def code(scene: Scene, texts: Sequence[str]) -> str:
    """What the model wants to run; most of it is no Python, and the error quotes it."""
    return _cells(scene, ["\n".join(batch) for batch in _batches(texts)])


def observation(scene: Scene, texts: Sequence[str]) -> str:
    return _cells(
        scene,
        [
            f"import json\nfor text in json.loads({json.dumps(json.dumps(batch))}): print(text)"
            for batch in _batches(texts)
        ],
    )


def tool_call(scene: Scene, texts: Sequence[str]) -> str:
    calls = [{"calls": [{"tool": text, "args": {"given": text}} for text in batch]} for batch in _batches(texts)]
    model = _script(scene, [*calls, {"text": "done"}])
    return on_a_terminal(scene, [["run", *_LOCAL, "--max-steps", "10000", "--model", model, "go"]])


def model_failure(scene: Scene, texts: Sequence[str]) -> str:
    commands: list[list[str]] = []
    for number, batch in enumerate(_batches(texts)):
        path = scene.folder / f"failing-{number}.jsonl"
        path.write_text(json.dumps({"error": "\n".join(batch), "status": 400}) + "\n", encoding="utf-8")
        commands.append(["run", *_LOCAL, "--model", f"scripted:{path}", "go"])
    return on_a_terminal(scene, commands)


def cell_output(scene: Scene, texts: Sequence[str]) -> str:
    (scene.workspace / "texts.json").write_text(json.dumps(list(texts)), encoding="utf-8")
    program = (
        "import json, sys\n"
        "for text in json.load(open('texts.json')):\n"
        "    print(text.encode('utf-8', 'surrogatepass').decode('utf-8', 'replace'), flush=True)\n"
        "    print(text, file=sys.stderr, flush=True)\n"
    )
    return on_a_terminal(scene, [["exec", *_LOCAL, "-c", program]])


def cell_error(scene: Scene, texts: Sequence[str]) -> str:
    return on_a_terminal(
        scene,
        [
            [
                "exec",
                *_LOCAL,
                "-c",
                f"import json\nraise ValueError('\\n'.join(json.loads({json.dumps(json.dumps(batch))})))",
            ]
            for batch in _batches(texts)
        ],
    )


def _imported(scene: Scene, name: str, events: Sequence[Mapping[str, object]]) -> Path:
    path = scene.folder / name
    session = "s_" + "0" * 26
    with path.open("w", encoding="utf-8") as file:
        for seq, event in enumerate(events, 1):
            at = "2026-01-01T00:00:00.000000Z"
            file.write(json.dumps({"seq": seq, "session": session, "at": at, **event}) + "\n")
    return path


def titles(scene: Scene, texts: Sequence[str]) -> str:
    commands: list[list[str]] = []
    for number, text in enumerate(texts):
        path = _imported(scene, f"title-{number}.jsonl", [{"kind": "SessionChanged", "title": text}])
        commands.append(["import", str(path)])
    on_a_terminal(scene, commands)
    return on_a_terminal(scene, [["sessions"]])


def story(scene: Scene, texts: Sequence[str]) -> str:
    events: list[Mapping[str, object]] = []
    for number, text in enumerate(texts):
        turn, id_ = f"t_{number}", f"a_{number}"
        events += [
            {"kind": "UserSpoke", "turn": turn, "text": text},
            {"kind": "ActionProposed", "id": id_, "turn": turn, "action": {"type": "cell", "code": text}},
            {"kind": "ActionFinished", "id": id_, "outcome": "ok", "observation": text, "duration_s": 0.1},
            {"kind": "Noticed", "text": text},
            {"kind": "TurnFailed", "turn": turn, "error": text},
        ]
    path = _imported(scene, "story.jsonl", events)
    return on_a_terminal(scene, [["import", str(path)], ["sessions", "show", "last"]])


def bad_names(scene: Scene, texts: Sequence[str]) -> str:
    commands: list[list[str]] = []
    for text in texts:
        commands += [
            ["run", *_LOCAL, "--model", text, "go"],
            ["sessions", "show", text],
            ["run", *_LOCAL, "--workspace", text.replace("\0", ""), "--model", "scripted:x", "go"],
            ["exec", text.replace("\0", "")],
            [text],
            ["secret", "rm", text],
        ]
    # In several goes: each is given its time.
    goes = [commands[start : start + 300] for start in range(0, len(commands), 300)]
    return "".join(on_a_terminal(scene, go) for go in goes)


def traceback(scene: Scene, texts: Sequence[str]) -> str:
    return on_a_terminal(scene, [["--debug", "run", *_LOCAL, "--model", text, "go"] for text in texts])


def configuration(scene: Scene, texts: Sequence[str]) -> str:
    extra = json.dumps({"given": list(texts)})
    return on_a_terminal(
        scene, [["config", "show", "--origin"]], PINFOLD_MODEL_EXTRA=extra, PINFOLD_MODEL_STOP=json.dumps(list(texts))
    )


def trust(scene: Scene, texts: Sequence[str]) -> str:
    """Names and contents of files that would be obeyed."""
    folder = scene.workspace / "tools"
    folder.mkdir(exist_ok=True)
    for number, text in enumerate(texts):
        # A name with a slash in it would be another text.
        given = "" if "/" in text else text.replace("\0", "")
        name = given.encode("utf-8", "replace")[:200].decode("utf-8", "ignore")
        (folder / f"{name}-{number}.yaml").write_bytes(text.encode("utf-8", "replace"))
    servers = {text: {"command": text, "args": [text]} for text in texts[:50]}
    (scene.workspace / ".mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    (scene.workspace / "AGENTS.md").write_text(texts[0].replace("\ud800", ""), encoding="utf-8", errors="replace")
    return on_a_terminal(
        scene, [["exec", *_LOCAL, "-c", "1"], ["trust", "--show"], ["trust", "--yes"], ["config", "show"]]
    )


def models(scene: Scene, texts: Sequence[str]) -> str:
    # JSON from elsewhere cannot carry half a letter. It is given a moment only, and asked again in case a busy machine let it pass.
    names = [text.encode("utf-8", "replace").decode() for text in texts]
    with models_served(names, at_once=30) as (url, rounds):
        return on_a_terminal(scene, [["model", "list"]] * (3 * rounds), OLLAMA_HOST=url)


def operator_log(scene: Scene, texts: Sequence[str]) -> str:
    program = (
        "import json, logging, sys\n"
        + ("from bench.sink_suite.driver import weaken\nweaken()\n" if scene.weak else "")
        + "from pinfold.app import start_operator_log\n"
        "start_operator_log('debug')\n"
        "for text in json.load(sys.stdin):\n"
        "    logging.getLogger('pinfold.x').error('said: %s', text)\n"
        "    try: raise ValueError(text)\n"
        "    except ValueError: logging.getLogger('pinfold.x').exception('raised')\n"
    )
    subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(list(texts)).encode(),
        env=scene.environment(),
        cwd=scene.workspace,
        check=True,
    )
    log = scene.folder / "state" / "pinfold" / "log" / "pinfold.log"
    return log.read_bytes().decode("utf-8", "surrogateescape")


SINKS: Mapping[str, Sink] = {
    "answer": answer,
    "code": code,
    "observation": observation,
    "tool call": tool_call,
    "model failure": model_failure,
    "cell output": cell_output,
    "cell error": cell_error,
    "titles": titles,
    "story": story,
    "bad names": bad_names,
    "traceback": traceback,
    "configuration": configuration,
    "trust": trust,
    "models": models,
    "operator log": operator_log,
}
