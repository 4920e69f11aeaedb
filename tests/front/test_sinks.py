"""What others wrote, on a real terminal: nothing that steers or hides, no secret, and harmless text as it is.

The whole of it, with 500 outputs for each sink, is `bench/sinks.py`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from bench.sink_suite.hostile import HARMLESS, RAW, hostile
from bench.sink_suite.secrets import planted
from bench.sink_suite.sinks import SINKS, sent
from bench.sink_suite.terminal import Scene, on_a_terminal, piped

pytestmark = pytest.mark.safety
HOSTILE = hostile(80)
SECRETS = planted()
QUOTED = ("configuration", "traceback", "titles", "trust")
"""Show text inside JSON, a repr, or only its first letters."""
COSTLY = ("bad names", "traceback", "titles", "models")
"""A command for each text."""
OWN = "correct-horse-battery-0815"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    folder = tmp_path / "scene"
    folder.mkdir()
    return Scene(folder=folder)


@pytest.mark.parametrize(
    "sink", [pytest.param(sink, marks=pytest.mark.slow if sink in COSTLY else []) for sink in SINKS]
)
def test_a_sink_passes_on_neither_what_steers_nor_secrets(sink: str, scene: Scene) -> None:
    steered = sent(SINKS[sink], scene, [*HOSTILE, *HARMLESS])
    assert steered.examined == len(HOSTILE) + len(HARMLESS)
    assert RAW.findall(_without_flags(steered.text)) == []
    if sink not in QUOTED:
        assert [text for text in HARMLESS if text.split("\n")[0] not in steered.text] == []
    shown = sent(SINKS[sink], Scene(folder=_fresh(scene)), [one.line for one in SECRETS])
    assert shown.examined == len(SECRETS) == 80
    assert [one.kind for one in SECRETS if any(part in shown.text for part in one.secret.split("\n"))] == []


@pytest.mark.parametrize("sink", ["answer", "observation", "story", "operator log"])
def test_a_build_without_the_one_function_lets_everything_through(sink: str, scene: Scene) -> None:
    weak = Scene(folder=scene.folder, weak=True)
    texts = [text for text in HOSTILE if not any("\ud800" <= letter <= "\udfff" for letter in text)]
    steered = sent(SINKS[sink], weak, texts)
    assert len(RAW.findall(steered.text)) > 100
    shown = sent(SINKS[sink], Scene(folder=_fresh(scene), weak=True), [one.line for one in SECRETS])
    assert sum(any(part in shown.text for part in one.secret.split("\n")) for one in SECRETS) > 60


def test_into_a_pipe_an_answer_and_a_cells_output_go_as_they_are(scene: Scene) -> None:
    """They are data there: `pinfold exec ... > file` must give the file."""
    program = "import sys; sys.stdout.buffer.write(b'\\x1b[31mred\\x1b[0m \\xe2\\x80\\xae'); sys.stdout.flush()"
    done = piped(scene, "exec", "--sandbox", "unsafe-local", "-c", program)
    assert done.stdout == b"\x1b[31mred\x1b[0m \xe2\x80\xae"
    assert "\\x1b[31mred" in on_a_terminal(scene, [["exec", "--sandbox", "unsafe-local", "-c", program]])


def test_json_is_exact_and_plain_ascii(scene: Scene) -> None:
    (scene.workspace / "texts.json").write_text(json.dumps(HOSTILE))
    program = "import json\nfor text in json.load(open('texts.json')): print(text.encode('utf-8', 'replace').decode())"
    done = piped(scene, "exec", "--sandbox", "unsafe-local", "--json", "-s", "x", "-c", program)
    assert done.returncode == 0, done.stderr
    assert all(byte in b"\n" or 32 <= byte < 127 for byte in done.stdout)
    assert "\\u001b[31mred" in done.stdout.decode()
    assert piped(scene, "export", "x", "--to", "jsonl").stdout.count(b"\\u001b[31mred") > 0


@pytest.mark.parametrize("how", ["a secret that is kept", "a key of a model"])
def test_own_secrets_are_in_no_event_blob_or_export_however_they_turn_up(scene: Scene, how: str) -> None:
    environment: dict[str, str] = {}
    if how == "a key of a model":
        environment["GROQ_API_KEY"] = OWN
    else:
        _keep(scene, "BIRDS", OWN)
    # As a program would that found it somewhere, in several writings, and too long for one event.
    program = (
        "import base64, json, sys\n"
        "own = '-'.join(['correct', 'horse', 'battery', '0815'])\n"
        "for text in (own, base64.b64encode(b'user:' + own.encode()).decode(), json.dumps({'x': own}), own.encode().hex()):\n"
        "    print('<', text, '>', flush=True)\n"
        "print(own * 2000)\n"
        "print(own, file=sys.stderr)\n"
        "own\n"
    )
    run = ("exec", "--sandbox", "unsafe-local", "-s", "x", "-c", program)
    plain = piped(scene, *run, **environment)
    assert plain.returncode == 0, plain.stderr
    shown = piped(scene, "exec", "-s", "x", "--json", "-c", program, **environment)
    listed = piped(scene, "sessions", "show", "x", **environment)
    exported = piped(scene, "export", "x", "--to", "jsonl", **environment)
    everything = [plain.stdout, plain.stderr, shown.stdout, listed.stdout, exported.stdout]
    # But for the session's variables, which are its own and as it made them.
    files = [path for path in (scene.folder / "data").rglob("*") if path.is_file() and "state" not in path.parts]
    kept = [path.read_bytes() for path in files]
    assert sum(map(len, kept)) > 20_000
    for form in (OWN.encode(), OWN.encode().hex().encode(), b"Y29ycmVjdC1ob3JzZS1iYXR0ZXJ5LTA4MT"):
        assert not any(form in data for data in everything)
        assert [path for path, data in zip(files, kept, strict=True) if form in data] == []
    assert exported.stdout.count(b"[redacted]") > 5


def test_without_a_secret_to_keep_the_same_program_is_recorded_exactly(scene: Scene) -> None:
    program = "print('-'.join(['correct', 'horse', 'battery', '0815']))"
    done = piped(scene, "exec", "--sandbox", "unsafe-local", "--json", "-c", program)
    assert OWN in done.stdout.decode()
    shape = next(one.secret for one in SECRETS if one.kind == "github classic")
    done = piped(scene, "exec", "--sandbox", "unsafe-local", "--json", "-c", f"print({shape!r})")
    assert shape in done.stdout.decode()  # the log is the user's own truth: looks alone do not change it


def _keep(scene: Scene, name: str, value: str) -> None:
    folder = scene.folder / "config" / "pinfold"
    folder.mkdir(parents=True, mode=0o700)
    path = folder / "secrets.json"
    path.write_text(json.dumps({"version": 1, "secrets": {name: {"hosts": [], "value": value}}}))
    path.chmod(0o600)


def _fresh(scene: Scene) -> Path:
    folder = scene.folder.with_name("fresh")
    folder.mkdir()
    return folder


def _without_flags(text: str) -> str:
    """Tags that only draw a flag, which harmless text has."""
    return text.replace("\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f", "")
