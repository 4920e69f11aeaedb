"""What is found to be guarded in a folder, before any session sees it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.sandbox.evaluation import as_user
from tests.time_complexity import assert_linear

from pinfold.sandbox.guards import set_id_files
from pinfold.sandbox.guards.gitdir import is_plain_config
from pinfold.sandbox.guards.guarded_paths import GuardedPaths, find_guarded_paths, reduce_folders
from pinfold.sandbox.guards.named_files import is_masked
from pinfold.sandbox.kernel.folders import remove_folder

pytestmark = pytest.mark.unit


def found(workspace: Path) -> GuardedPaths:
    return find_guarded_paths(workspace, "/w", steers=True)


def git_folder(path: Path, config: str = "") -> Path:
    for name in ("objects/info", "refs/heads", "hooks"):
        (path / name).mkdir(parents=True)
    (path / "HEAD").write_text("ref: refs/heads/main\n")
    (path / "config").write_text(config)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *(".env", ".ENV", ".env.local", "a.pem", "id_rsa", "id_ed25519.pub", "id_dsa", ".netrc", "server.key"),
        *("a.p12", "a.pfx", "a.jks", "a.kdbx", ".git-credentials", ".npmrc", ".pypirc", ".pgpass", ".my.cnf"),
        *(".htpasswd", ".vault-token", ".aws/credentials", "x/.kube/config", ".docker/config.json"),
        *("main.tfstate", "main.tfstate.backup", "credentials.json", "service-account-1.json", "secrets.yml"),
        *("secrets.yaml", ".boto", ".s3cfg", "a.keystore", "a.ppk", ".config/gcloud/x", ".config/gh/hosts.yml"),
        *(".env/inside", ".env.example/.env", "lib/site-packages/.env"),
    ],
)
def test_secrets_are_known_by_name(name: str) -> None:
    assert is_masked(name)


@pytest.mark.parametrize(
    "name",
    [
        *(".env.example", ".env.Sample", ".envrc", "pem", "a.pem.txt", ".git", "x\n.env", "credentials", "config"),
        *("config.json", "secret.yaml", "keys.py", ".venv/lib/python3.11/site-packages/certifi/cacert.pem"),
        "node_modules/tls/test.key",
    ],
)
def test_what_only_looks_like_one_is_not(name: str) -> None:
    assert not is_masked(name)


def test_a_git_folder_is_pinned_and_only_what_git_obeys_is_read_only(workspace: Path) -> None:
    git_folder(workspace / ".git")
    guards = found(workspace)
    assert guards.pinned == ["/w/.git"]
    assert guards.protected == ["/w/.git/config", "/w/.git/hooks"]
    absent = {"/w/.git/commondir", "/w/.git/config.worktree", "/w/.git/objects/info/alternates", "/w/AGENTS.md"}
    assert absent <= set(guards.kept)
    assert "/w/.git/HEAD" not in guards.kept


def test_bare_repositories_modules_and_worktrees_are_git_folders_too(workspace: Path) -> None:
    git_folder(workspace / ".git")
    git_folder(workspace / ".git" / "modules" / "lib")
    git_folder(workspace / "mirror")
    tree = workspace / ".git" / "worktrees" / "tree"
    tree.mkdir(parents=True)
    for name in ("HEAD", "commondir", "gitdir"):
        (tree / name).touch()
    guards = found(workspace)
    folders = ["/w/.git", "/w/.git/modules/lib", "/w/.git/worktrees/tree", "/w/mirror"]
    assert sorted(guards.pinned) == folders
    assert guards.pinned.index("/w/.git") < guards.pinned.index("/w/.git/modules/lib")
    assert {"/w/.git/worktrees/tree/commondir", "/w/.git/worktrees/tree/gitdir"} <= set(guards.protected)
    assert {"/w/mirror/config", "/w/.git/modules/lib/hooks"} <= set(guards.protected)


def test_what_a_config_names_in_the_workspace_is_read_only(workspace: Path) -> None:
    for name in ("tools/watch.py", "tools/more.cfg", "tools/inner.cfg", "README.md", "main"):
        (workspace / name).parent.mkdir(exist_ok=True)
        (workspace / name).touch()
    (workspace / "tools" / "more.cfg").write_text("[include]\n\tpath = inner.cfg\n")
    config = (
        '[core]\n\tfsmonitor = python "tools/watch.py" -q\n\thooksPath = hooks.d\n'
        '[include]\n\tpath = ../tools/more.cfg\n[branch "main"]\n\tmerge = refs/heads/main\n'
        '[remote "origin"]\n\turl = README.md\n'
    )
    (git_folder(workspace / ".git", config) / "refs" / "heads" / "main").touch()
    guards = found(workspace)
    named = {path for path in guards.protected if not path.startswith("/w/.git/")}
    assert named == {"/w/tools/watch.py", "/w/tools/more.cfg", "/w/tools/inner.cfg"}
    assert "/w/hooks.d" in guards.kept
    assert "/w/.git/refs/heads/main" not in guards.kept


def test_links_are_kept_and_what_they_lead_to_is_read_only(workspace: Path, tmp_path: Path) -> None:
    (workspace / "docs").mkdir()
    (workspace / "docs" / "agents.md").touch()
    (workspace / "AGENTS.md").symlink_to("docs/agents.md")
    (workspace / "CLAUDE.md").symlink_to("AGENTS.md")
    (workspace / ".mcp.json").symlink_to(tmp_path / "elsewhere")
    guards = found(workspace)
    assert guards.protected == ["/w/docs/agents.md"]
    assert {"/w/AGENTS.md", "/w/CLAUDE.md", "/w/.mcp.json", "/w/docs/agents.md"} <= set(guards.kept)


def test_names_of_branches_are_no_secrets(workspace: Path) -> None:
    (git_folder(workspace / ".git") / "refs" / "heads" / "x.pem").touch()
    (workspace / "x.pem").touch()
    assert [path for path, _, _ in found(workspace).masked] == ["/w/x.pem"]


def test_nothing_is_made_on_the_host(workspace: Path) -> None:
    git_folder(workspace / ".git")
    before = sorted(workspace.rglob("*"))
    found(workspace)
    assert sorted(workspace.rglob("*")) == before


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tbare = false\n",
        '[remote "o"]\n\turl = git@example.org:x.git\n\tfetch = +refs/heads/*:refs/remotes/o/*\n# word\n',
        "[user]\n\tname = A B\n",
    ],
)
def test_plain_settings_are_plain(text: str) -> None:
    assert is_plain_config(text)


@pytest.mark.parametrize(
    "text",
    [
        "[core]\n\tfsmonitor = evil\n",
        "[core] fsmonitor = evil\n",
        "[core]\n\tbare = false \\\n\tfsmonitor = evil\n",
        '[core]\n\tbare = "\n\tfsmonitor = evil"\n',
        "[CORE]\n\tHooksPath = x\n",
        "[include]\n\tpath = x\n",
        '[includeIf "gitdir:/"]\n\tpath = x\n',
        '[remote "o"]\n\turl = ext::sh -c evil\n',
        '[remote "o"]\n\tuploadpack = evil\n',
        "[core.x]\n\tbare = false\n",
        "[alias]\n\tst = !evil\n",
        "[extensions]\n\tworktreeConfig = true\n",
        "fsmonitor\n",
        "[user]\n\tname = A\x0c[core]\n\tbare = false\n",
    ],
)
def test_what_could_run_or_is_not_understood_is_not_plain(text: str) -> None:
    assert not is_plain_config(text)


def test_the_time_it_takes_to_look_through_files_grows_with_their_number_and_no_faster(workspace: Path) -> None:
    def made(folders: int) -> Path:
        top = workspace / str(folders)
        for number in range(folders):
            folder = top / f"d{number}"
            folder.mkdir(parents=True)
            for name in range(100):
                os.close(os.open(folder / f"file-{name}.csv", os.O_CREAT | os.O_WRONLY))
        return top

    assert_linear(found, made, (3, 30))


DEPTH = 2200


def nested(top: Path) -> None:
    """So deep that what lies at the end has no path that the kernel takes; it is a secret by its name."""
    here = os.open(top, os.O_RDONLY)
    for _ in range(DEPTH):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.close(os.open(".env", os.O_CREAT, dir_fd=here))
    os.close(here)


def test_what_lies_too_deep_is_hidden_as_a_whole_and_refuses_nobody(workspace: Path) -> None:
    nested(workspace)
    (workspace / "d" / ".env").touch()
    guards = found(workspace)
    assert [path for path, _, _ in guards.masked] == ["/w/d/.env"]
    (hidden,) = guards.hidden
    assert hidden.startswith("/w/d/d/d")
    assert len(hidden) < 4000
    assert remove_folder(workspace)
    assert not workspace.exists()


def test_many_that_lie_too_deep_are_hidden_by_few() -> None:
    places = {f"/w/{'a/' * 500}{number}/{'b/' * 1500}c" for number in range(70)}
    (place,) = reduce_folders(places)
    assert all(path.startswith(f"{place}/") for path in places)
    assert len(place) > 500
    assert reduce_folders({"/w/a", "/w/b"}) == ["/w/a", "/w/b"]


@pytest.mark.skipif(os.geteuid() != 0, reason="root's own set-id files are the case")
@pytest.mark.parametrize("find", ["/usr/bin/find", "/bin/false", "/none"])
def test_programs_that_run_as_root_are_protected_whether_find_works_or_not(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, find: str
) -> None:
    monkeypatch.setattr(set_id_files, "FIND", find)
    for name, mode in {"plain": 0o755, "deep/user": 0o4755, "deep/group\n": 0o2755}.items():
        path = workspace / name
        path.parent.mkdir(exist_ok=True)
        path.touch()
        path.chmod(mode)
    (workspace / "link").symlink_to("deep/user")
    (workspace / "deep").chmod(0o2755)
    assert {path for path in found(workspace).protected if path.startswith("/w/")} == {
        "/w/deep/user",
        "/w/deep/group\n",
    }


@pytest.mark.skipif(os.geteuid() != 0, reason="as above")
@pytest.mark.parametrize("count", [1, 99, 100, 200])
def test_they_are_protected_in_a_folder_of_any_size(workspace: Path, count: int) -> None:
    for number in range(count):
        (workspace / f"plain{number}").touch()
    (workspace / "user").touch()
    (workspace / "user").chmod(0o4755)
    assert [path for path in found(workspace).protected if path.startswith("/w/")] == ["/w/user"]


@pytest.mark.skipif(os.geteuid() != 0, reason="as above")
def test_a_search_that_was_begun_early_serves_one_session_only(workspace: Path) -> None:
    (workspace / "folder").mkdir()  # otherwise a walk is faster
    for name in ("first", "second"):
        (workspace / name).touch()
        (workspace / name).chmod(0o4755)
        if name == "first":
            set_id_files.begin_search(workspace)
        assert f"/w/{name}" in found(workspace).protected


CLOSED = """
import os, tempfile
from pathlib import Path
from pinfold.sandbox.guards.guarded_paths import find_guarded_paths
from pinfold.sandbox.kernel.folders import remove_folder
top = Path(tempfile.mkdtemp())
(top / 'shut' / 'in').mkdir(parents=True)
(top / 'shut' / 'in' / '.env').touch()
(top / 'listed' / 'in').mkdir(parents=True)
(top / 'listed' / 'in' / 'id_rsa').touch()
(top / 'shut' / 'in').chmod(0)
(top / 'shut').chmod(0)
(top / 'listed').chmod(0o400)
print(sorted(path for path, _, _ in find_guarded_paths(top, '/w', steers=True).masked))
print(oct((top / 'shut').stat().st_mode), oct((top / 'listed').stat().st_mode))
print(remove_folder(top), top.exists())
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become a user")
def test_folders_that_are_closed_to_their_own_user_are_looked_into_and_stay_closed() -> None:
    done = as_user(CLOSED)
    assert done.stdout.splitlines() == [
        "['/w/listed/in/id_rsa', '/w/shut/in/.env']",
        "0o40000 0o40400",
        "True False",
    ], done
