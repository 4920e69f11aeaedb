"""Secrets are kept for their user alone, given out for their hosts alone, and shown to nobody."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.app import ConfigError
from pinfold.app.trust.secrets import Secrets, host_pattern, secrets_in
from pinfold.text import presentable, without_known

pytestmark = pytest.mark.safety
VALUE = "swordfish in the reeds"


@pytest.fixture(autouse=True)
def no_keyring(monkeypatch: pytest.MonkeyPatch) -> None:
    """The keyring of whoever runs the tests is not ours to write to."""
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.fail.Keyring")
    if "keyring" in sys.modules:
        import keyring
        from keyring.backends.fail import Keyring

        keyring.set_keyring(Keyring())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "xdg" / "config" / "pinfold" / "secrets.json"


@pytest.mark.parametrize(
    ("pattern", "host"),
    [
        ("api.example.org", "api.example.org"),
        ("API.Example.org.", "api.example.org"),
        ("api.example.org", "API.EXAMPLE.ORG"),
        ("api.example.org", "api.example.org."),
        ("*.example.org", "api.example.org"),
        ("*.example.org", "a.b.example.org"),
        ("127.0.0.1", "127.0.0.1"),
        ("localhost", "localhost"),
        ("xn--mnchen-3ya.example", "xn--mnchen-3ya.example"),
        ("[::1]", "[::1]"),
    ],
)
def test_a_secret_is_given_out_for_its_hosts(pattern: str, host: str) -> None:
    Secrets().set("BIRDS", VALUE, [pattern])
    assert Secrets().get("BIRDS", host) == VALUE


@pytest.mark.parametrize(
    "host",
    [
        "",
        "example.org",
        "evil.example",
        "api.example.org.evil.example",
        "api.example.org@evil.example",
        "api.example.org:443",
        "api.example.org/",
        "api.example.org\x00.evil.example",
        "evil.example\x00api.example.org",
        "api.example.org\n",
        "api.example.org\r\nHost: evil.example",
        " api.example.org",
        "api.example.org ",
        "api.example.org..",
        "apiXexample.org",
        "xapi.example.org",
        "\uff41pi.example.org",
        "api\u3002example.org",
        "ap\u0131.example.org",
        "api.example.org\u200b",
        "*.example.org",
        "*",
        "http://api.example.org",
        ".example.org",
        "-.example.org",
        "a" * 300 + ".example.org",
    ],
)
def test_a_secret_is_given_out_for_no_other_host(host: str) -> None:
    Secrets().set("EXACT", VALUE, ["api.example.org"])
    Secrets().set("BELOW", VALUE, ["*.example.org"])
    assert Secrets().get("EXACT", host) is None
    assert Secrets().get("BELOW", host) in (None, VALUE if host == "xapi.example.org" else None)
    assert Secrets().get("EXACT", "api.example.org") == VALUE  # control


def test_a_secret_without_hosts_and_one_that_is_not_there_are_given_to_nobody() -> None:
    Secrets().set("BIRDS", VALUE)
    assert Secrets().get("BIRDS", "api.example.org") is None
    assert Secrets().get("OTHER", "api.example.org") is None
    Secrets().set("BIRDS", VALUE, ["api.example.org"])
    Secrets().set("BIRDS", "another value")  # its hosts stay
    assert Secrets().get("BIRDS", "api.example.org") == "another value"


@pytest.mark.parametrize(
    "pattern",
    [
        "",
        "*",
        "*.org",
        "**.example.org",
        "a*.example.org",
        "*.*.org",
        "http://x.org",
        "x.org:443",
        "x.org/a",
        "a b.org",
        *("x..org", "münchen.example", "x\n.org", "-x.org", "*.", ".org", "user@x.org", "x.org\x00"),
    ],
)
def test_what_is_no_host_is_refused(pattern: str, store: Path) -> None:
    with pytest.raises(ConfigError, match=r"is not a host name: write api\.example\.org"):
        Secrets().set("BIRDS", VALUE, [pattern])
    assert not store.exists()


@given(st.text(max_size=30))
def test_what_is_taken_for_a_host_is_plain(text: str) -> None:
    try:
        pattern = host_pattern(text)
    except ConfigError:
        return
    assert pattern.isascii()
    assert pattern == host_pattern(pattern)
    assert not set(pattern) & set(" /@:\\?#%\r\n\t\x00") or pattern.startswith("[")


@pytest.mark.parametrize(
    "name", ["", "a b", "1x", "../x", "x/y", "\x1b[31m", "x\n", "{}", "x" * 65, "é", "x\u202e", "a;b", "$(x)"]
)
def test_what_is_no_name_is_refused(name: str, store: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be a secret's name"):
        Secrets().set(name, VALUE, ["x.org"])
    assert not store.exists()


@pytest.mark.parametrize("value", ["", "short", "with\x00null"])
def test_what_is_no_secret_is_refused(value: str) -> None:
    with pytest.raises(ConfigError, match="too short to be a secret"):
        Secrets().set("BIRDS", value)


def test_the_file_is_for_its_owner_alone(store: Path) -> None:
    store.parent.mkdir(parents=True, mode=0o755)
    Secrets().set("BIRDS", VALUE, ["x.org"])
    assert (stat.S_IMODE(store.stat().st_mode), stat.S_IMODE(store.parent.stat().st_mode)) == (0o600, 0o700)
    assert [path.name for path in store.parent.iterdir() if path.name != ".secrets.json.lock"] == ["secrets.json"]


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660, 0o666, 0o601])
def test_a_file_that_others_may_read_is_refused_with_the_fix(store: Path, mode: int) -> None:
    Secrets().set("BIRDS", VALUE, ["x.org"])
    store.chmod(mode)
    for use in (Secrets().all, Secrets().hide_values, lambda: Secrets().get("BIRDS", "x.org")):
        with pytest.raises(ConfigError, match=f"chmod 600 {store}"):
            use()
    with pytest.raises(ConfigError, match=f"chmod 600 {store}"):
        Secrets().set("OTHER", VALUE)
    store.chmod(0o600)
    assert Secrets().get("BIRDS", "x.org") == VALUE


def test_a_folder_that_others_may_write_is_refused_with_the_fix(store: Path) -> None:
    Secrets().set("BIRDS", VALUE, ["x.org"])
    store.parent.chmod(0o777)
    with pytest.raises(ConfigError, match=f"chmod 700 {store.parent}"):
        Secrets().get("BIRDS", "x.org")


def test_a_file_that_is_a_link_or_a_pipe_or_damaged_is_refused(store: Path, tmp_path: Path) -> None:
    store.parent.mkdir(parents=True, mode=0o700)
    (tmp_path / "elsewhere").write_text("{}")
    store.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ConfigError, match="must be a regular file that you own"):
        Secrets().all()
    store.unlink()
    os.mkfifo(store, 0o600)
    with pytest.raises(ConfigError):
        Secrets().all()
    store.unlink()
    for text in ("{", "[]", '{"version": 2}', '{"secrets": {"x": 1}}', "\xff"):
        store.write_bytes(text.encode("latin-1"))
        store.chmod(0o600)
        with pytest.raises(ConfigError, match="is damaged; move it away"):
            Secrets().all()


def test_a_header_is_made_for_its_hosts_alone_and_kept_when_the_value_changes() -> None:
    secrets = Secrets()
    secrets.set("TOKEN", "hidden-1234", ["api.example.org"], "Authorization: Bearer {}")
    secrets.set("OTHER", "other-5678", ["api.example.org"])
    assert secrets.headers_for("api.example.org") == {"Authorization": "Bearer hidden-1234"}
    assert secrets.headers_for("example.org") == {}
    secrets.set("TOKEN", "hidden-9999")
    assert secrets.headers_for("api.example.org") == {"Authorization": "Bearer hidden-9999"}


@pytest.mark.parametrize("header", ["Authorization", "Authorization: Bearer", "A B: {}", "A: {}\r\nB: x", ": {}"])
def test_what_is_no_header_is_refused(header: str) -> None:
    with pytest.raises(ConfigError, match=r"is not a header with \{\} in place of the secret"):
        Secrets().set("TOKEN", "hidden-1234", ["api.example.org"], header)


def test_listing_names_hosts_and_place_and_never_a_value() -> None:
    Secrets().set("B", VALUE, ["b.org", "*.b.org", "b.org"])
    Secrets().set("A", VALUE)
    listed = Secrets().all()
    assert [(one.name, one.hosts, one.where) for one in listed] == [
        ("A", (), "file"),
        ("B", ("b.org", "*.b.org"), "file"),
    ]
    assert VALUE not in repr(listed)


def test_what_is_forgotten_is_gone_from_the_file(store: Path) -> None:
    Secrets().set("BIRDS", VALUE, ["x.org"])
    assert VALUE in store.read_text()
    Secrets().remove("BIRDS")
    assert VALUE not in store.read_text()
    with pytest.raises(ConfigError, match="there is no secret 'BIRDS'; there are: none"):
        Secrets().remove("BIRDS")


def test_many_set_at_once_are_all_kept() -> None:
    def keep(number: int) -> None:
        Secrets().set(f"S{number}", f"{VALUE} {number}", ["x.org"])

    workers = [threading.Thread(target=keep, args=[number]) for number in range(16)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert {Secrets().get(f"S{number}", "x.org") for number in range(16)} == {f"{VALUE} {n}" for n in range(16)}


def test_a_secret_that_is_set_or_read_is_hidden_from_then_on() -> None:
    value = "a value of this very test"
    assert presentable(value) == value  # control
    Secrets().set("HIDDEN", value, ["x.org"])
    assert presentable(f"it is {value}") == "it is [redacted]"
    assert without_known(f"it is {value}") == "it is [redacted]"


def test_secrets_of_the_environment_are_told_from_words_and_paths(tmp_path: Path) -> None:
    taken = {
        "OPENAI_API_KEY": "sk-0123456789",
        "HF_TOKEN": "hub-0123456789",
        "PGPASSWORD": "hunter2hunter2",
        "my_service_secret": "abcdefghijklmnopqrstuvwxyz",
    }
    left = {
        "OLLAMA_API_KEY": "ollama",
        "VLLM_API_KEY": "not-needed",
        "LOCAL_API_KEY": "EMPTY",
        "SSH_KEY": str(tmp_path),
        "TOKENIZERS_PARALLELISM": "false123456789",
        "PATH": "/usr/bin:/bin:/usr/local/bin0",
        "PINFOLD_MODEL_KEY_ENV": "SOME_VARIABLE_0",
    }
    assert set(secrets_in({**taken, **left})) == set(taken.values())


# With a keyring: a real one, of the package's own kind, that keeps things in a file of the test's.

BACKEND = """
import json, os, pathlib
from keyring.backend import KeyringBackend
from keyring.errors import PasswordDeleteError
PLACE = pathlib.Path(os.environ["TEST_KEYRING"])

class Keyring(KeyringBackend):
    priority = 5
    def _all(self): return json.loads(PLACE.read_text()) if PLACE.exists() else {}
    def get_password(self, service, name):
        if os.environ.get("TEST_KEYRING_LOCKED"): raise RuntimeError("locked")
        return self._all().get(f"{service}/{name}")
    def set_password(self, service, name, value):
        if os.environ.get("TEST_KEYRING_LOCKED"): raise RuntimeError("locked")
        PLACE.write_text(json.dumps({**self._all(), f"{service}/{name}": value}))
    def delete_password(self, service, name):
        kept = self._all()
        if kept.pop(f"{service}/{name}", None) is None: raise PasswordDeleteError(name)
        PLACE.write_text(json.dumps(kept))
"""


def in_a_process(tmp_path: Path, program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    (tmp_path / "birds_keyring.py").write_text(BACKEND)
    given: dict[str, Any] = {
        **os.environ,
        "PYTHON_KEYRING_BACKEND": "birds_keyring.Keyring",
        "TEST_KEYRING": str(tmp_path / "ring.json"),
        "PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]),
        **environment,
    }
    program = f"from pinfold.app.trust.secrets import Secrets\nfrom pinfold.text import presentable\n{program}"
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=given, check=False)


def test_where_a_keyring_works_values_are_in_it_and_not_in_the_file(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("keyring")
    done = in_a_process(tmp_path, f"print(Secrets().set('BIRDS', {VALUE!r}, ['x.org']).where)")
    assert (done.stdout, done.stderr) == ("keyring\n", "")
    assert VALUE not in store.read_text()
    assert VALUE in (tmp_path / "ring.json").read_text()
    use = (
        f"print(Secrets().get('BIRDS', 'x.org') == {VALUE!r}, Secrets().get('BIRDS', 'y.org'), presentable({VALUE!r}))"
    )
    assert in_a_process(tmp_path, use).stdout == "True None [redacted]\n"
    locked = in_a_process(tmp_path, use, TEST_KEYRING_LOCKED="1")
    assert "the keyring did not return BIRDS; unlock it" in locked.stderr
    assert VALUE not in locked.stderr.replace(use, "")
    in_a_process(tmp_path, "Secrets().remove('BIRDS')")
    assert VALUE not in (tmp_path / "ring.json").read_text()
    assert in_a_process(tmp_path, use).stdout == f"False None {VALUE}\n"


def test_where_the_keyring_fails_values_go_to_the_file(tmp_path: Path, store: Path) -> None:
    pytest.importorskip("keyring")
    done = in_a_process(tmp_path, f"print(Secrets().set('BIRDS', {VALUE!r}, ['x.org']).where)", TEST_KEYRING_LOCKED="1")
    assert done.stdout == "file\n"
    assert VALUE in store.read_text()
    in_a_process(tmp_path, f"Secrets().set('BIRDS', {VALUE!r})")
    assert VALUE not in store.read_text()  # it moved
