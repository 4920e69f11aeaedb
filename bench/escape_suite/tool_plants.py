"""What a program may leave for the user's other tools, as in `git_plants.py`; and ordinary work that must stay."""

from __future__ import annotations

from bench.escape_suite.git_plants import LOOP, RUN
from bench.escape_suite.program import Ground, Row

from pinfold.sandbox.guards.named_files import GIT_FOLDER, TABLE

VENV = ".venv/bin/python -c pass"
SITE = "$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_path(\"purelib\"))')"
HOOKED = f"echo 'import start_hook' > {SITE}/start.pth; echo > {SITE}/start_hook.py"
ENVIRONMENTS: dict[str, Row] = {
    "the interpreter replaced": ("os.remove('.venv/bin/python'); put('.venv/bin/python', SCRIPT, 0o755)", VENV, ".venv/bin/python"),
    "the interpreter led elsewhere": ("put('tools/py', SCRIPT, 0o755); os.remove('.venv/bin/python3'); os.symlink('../../tools/py', '.venv/bin/python3')", ".venv/bin/python3 -c pass", ".venv/bin/python3"),
    "another home for the interpreter": (
        "lib = Path(os.__file__).parent; fake = Path('cache/lib') / lib.name; fake.mkdir(parents=True)\nfor each in lib.iterdir(): (fake / each.name).symlink_to(each)\nput(fake / 'sitecustomize.py', PYTHON); os.makedirs('cache/bin')\ntext = Path('.venv/pyvenv.cfg').read_text().split('\\n'); put('.venv/pyvenv.cfg', '\\n'.join(f'home = {Path(\"cache/bin\").absolute()}' if line.startswith('home') else line for line in text)); add('.venv/pyvenv.cfg', '# /srv/ran\\n')",
        VENV, ".venv/pyvenv.cfg", {"without": "protection keeper"},
    ),
    "a line that imports": ("put(f'{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')", VENV, ".venv/lib/*/site-packages/x.pth"),
    "a path file to the workspace": ("put('src/sitecustomize.py', PYTHON); put(f'{SITE}/dev.pth', f'{Path(\"src\").absolute()}\\n# /srv/ran\\n')", VENV, ".venv/lib/*/site-packages/dev.pth"),
    "a module run at every start": ("put(f'{SITE}/sitecustomize.py', PYTHON)", VENV, ".venv/lib/*/site-packages/sitecustomize.py"),
    "a user's module run at every start": ("put(f'{SITE}/usercustomize.py', PYTHON)", "", ".venv/lib/*/site-packages/usercustomize.py"),
    "a package run at every start": ("put(f'{SITE}/sitecustomize/__init__.py', PYTHON)", VENV, ".venv/lib/*/site-packages/sitecustomize/__init__.py"),
    "bytecode run at every start": ("import py_compile\nput('x.py', PYTHON); py_compile.compile('x.py', f'{SITE}/sitecustomize.pyc')", VENV, ".venv/lib/*/site-packages/sitecustomize.pyc"),
    "what a path file imports": ("put(f'{SITE}/start_hook.py', PYTHON)", VENV, ".venv/lib/*/site-packages/start_hook.py", {"before": HOOKED, "without": "protection keeper"}),
    "what a path file imports and is not there": ("put(f'{SITE}/start_hook/__init__.py', PYTHON)", VENV, ".venv/lib/*/site-packages/start_hook/__init__.py", {"before": f"echo 'import start_hook' > {SITE}/start.pth"}),
    "what a path file imports from the project": ("put('src/start_hook.py', PYTHON)", VENV, "src/start_hook.py", {"before": f"mkdir -p src; echo $PWD/src > {SITE}/a.pth; echo 'import start_hook' > {SITE}/start.pth"}),
    "the bytecode of what a path file imports": (
        "import importlib.util, py_compile\nput('x.py', PYTHON); name = Path(importlib.util.cache_from_source(f'{SITE}/start_hook.py')).name; py_compile.compile('x.py', f'{SITE}/__pycache__/{name}', invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)",
        VENV, ".venv/lib/*/site-packages/__pycache__/start_hook.*.pyc", {"before": HOOKED},
    ),
    "the bytecode of the project's own module": (
        "import importlib.util, py_compile\nput('x.py', PYTHON); py_compile.compile('x.py', importlib.util.cache_from_source('app.py'), invalidation_mode=py_compile.PycInvalidationMode.UNCHECKED_HASH)",
        ".venv/bin/python -c 'import app'", "__pycache__/app.*.pyc",
    ),
    "what is sourced to enter it": ("add('.venv/bin/activate', RUN + '\\n')", "bash -c '. .venv/bin/activate'", ".venv/bin/activate", {"tool": "bash", "without": "protection keeper"}),
    "a command that others shadow": ("put('.venv/bin/ls', SCRIPT, 0o755)", "bash -c '. .venv/bin/activate; ls'", ".venv/bin/ls", {"tool": "bash"}),
    "the whole environment exchanged": ("os.rename('.venv', 'old'); sh('cp -r old .venv'); put(f'{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')", VENV, ".venv/lib/*/site-packages/x.pth"),
    "the environment by a link": ("os.makedirs('cache'); sh('cp -r .venv cache/v'); put(SITE.replace('.venv', 'cache/v') + '/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n'); os.rename('.venv', 'old'); os.symlink('cache/v', '.venv')", VENV, ".venv/lib/*/site-packages/x.pth"),
    "the environment's library by a link": ("os.makedirs('cache'); sh('cp -r .venv/lib cache/lib'); os.rename('.venv/lib', '.venv/old'); os.symlink('../cache/lib', '.venv/lib'); put(f'{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')", VENV, ".venv/lib/*/site-packages/x.pth"),
    "a mounted environment": ("put(f'../other/{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')", "../other/.venv/bin/python -c pass", "../other/.venv/lib/*/site-packages/x.pth", {"ground": "mounted"}),
    "a mounted folder's task": ("put('../other/.vscode/tasks.json', '{\"command\": \"%s\", \"runOn\": \"folderOpen\"}' % RUN)", "", "../other/.vscode/tasks.json", {"ground": "mounted"}),
    "an environment of its own": ("sh(f'{sys.executable} -m venv --without-pip env'); put(SITE.replace('.venv', 'env') + '/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')", "env/bin/python -c pass", "env/lib/*/site-packages/x.pth", {"told_is_enough": True}),
    "an environment with another name, deep": ("sh(f'{sys.executable} -m venv --without-pip web/tools/py'); put(SITE.replace('.venv', 'web/tools/py') + '/sitecustomize.py', PYTHON)", "web/tools/py/bin/python -c pass", "web/tools/py/lib/*/site-packages/sitecustomize.py", {"told_is_enough": True}),
    "an environment where the user's is expected": ("sh(f'{sys.executable} -m venv --without-pip .venv'); put(f'{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')", VENV, ".venv/lib/*/site-packages/x.pth", {"ground": "folder", "told_is_enough": True}),
    "an index for its installer": ("put('.venv/pip.conf', '[global]\\nindex-url = http://h/srv/ran\\n')", "", ".venv/pip.conf"),
    "a start module at the top": ("put('sitecustomize.py', PYTHON)", "PYTHONPATH=. .venv/bin/python -c pass", "sitecustomize.py"),
    "an environment by a thread after the last cell": ("import threading\nthreading.Thread(target=lambda: (time.sleep(.3), put(f'{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\n')), daemon=True).start()", VENV, ".venv/lib/*/site-packages/x.pth", {"idle_s": 0.8}),
    "an environment by a process left running": ("later('''time.sleep(.1)\nwhile True: swap(f'{SITE}/x.pth', 'import pathlib; pathlib.Path(\"/srv/ran\").touch()\\\\n')''')", VENV, ".venv/lib/*/site-packages/x.pth", {"then": LOOP}),
}  # fmt: skip
TASK = '{"tasks": [{"command": "touch /srv/ran", "runOptions": {"runOn": "folderOpen"}}]}'
FILES = {
    ".envrc": RUN, "web/.envrc": RUN, "mise.toml": f'[hooks]\nenter = "{RUN}"\n', ".mise.toml": f"[env]\nx = \"{{{{ exec(command='{RUN}') }}}}\"\n",
    ".config/mise/config.toml": f'[hooks]\nenter = "{RUN}"\n', ".tool-versions": "python path:/srv/ran\n",
    ".vscode/tasks.json": TASK, ".vscode/settings.json": '{"python.defaultInterpreterPath": "/srv/ran"}', ".vscode/launch.json": TASK, "web/.vscode/tasks.json": TASK,
    "all.code-workspace": TASK, ".idea/runConfigurations/x.xml": f"<{RUN}>", ".idea/workspace.xml": f"<{RUN}>", ".zed/settings.json": TASK, ".zed/tasks.json": TASK,
    ".nvim.lua": f"os.execute('{RUN}')", ".dir-locals.el": f'((nil . ((eval . (shell-command "{RUN}")))))', ".sublime-project": TASK,
    ".devcontainer/devcontainer.json": f'{{"initializeCommand": "{RUN}"}}', ".devcontainer.json": f'{{"initializeCommand": "{RUN}"}}', ".devcontainer/web/devcontainer.json": f'{{"initializeCommand": "{RUN}"}}',
    ".husky/pre-commit": RUN, ".pre-commit-config.yaml": f"repos: [{{repo: local, hooks: [{{id: x, entry: {RUN}}}]}}]", "lefthook.yml": f"pre-commit: {{commands: {{x: {{run: {RUN}}}}}}}",
    ".bashrc": RUN, ".bash_profile": RUN, ".profile": RUN, ".zshrc": RUN, ".zshenv": RUN, ".config/fish/config.fish": RUN,
    ".perldb": f'system("{RUN}");', ".lldbinit": f"platform shell {RUN}", ".Rprofile": f"system('{RUN}')", ".irbrc": f"`{RUN}`",
    "jupyter_server_config.py": f"import os; os.system('{RUN}')", "jupyter_notebook_config.py": f"import os; os.system('{RUN}')", "ipython_config.py": f"import os; os.system('{RUN}')",
    ".cargo/config.toml": f'[build]\nrustc-wrapper = "{RUN}"\n', ".yarnrc.yml": "yarnPath: /srv/ran\n", ".pnpmfile.cjs": f"require('child_process').execSync('{RUN}')",
    ".claude/settings.json": f'{{"hooks": {{"SessionStart": [{{"command": "{RUN}"}}]}}}}', ".cursor/mcp.json": f'{{"mcpServers": {{"x": {{"command": "{RUN}"}}}}}}',
    ".gitlab-ci.yml": f"x: {{script: {RUN}}}", ".circleci/config.yml": f"jobs: {{x: {{steps: [{{run: {RUN}}}]}}}}",
    ".github/workflows/x.yml": f"on: push\njobs: {{x: {{steps: [{{run: {RUN}}}]}}}}",
}  # fmt: skip
"""By path, its content: nothing of theirs need be on this machine."""
BY_FILE: dict[str, Row] = {f"the file {path}": (f"put({path!r}, {text!r})", "", path) for path, text in FILES.items()}
THROUGH = {
    ".cargo/config.toml": f'[build]\nrustc-wrapper = "{RUN}"\n', ".hg/hgrc": f"[hooks]\nupdate = {RUN}\n",
    ".config/git/config": f"[core]\nfsmonitor = {RUN}\n", ".vscode/tasks.json": TASK,
}  # fmt: skip
BY_A_LINK: dict[str, Row] = {
    "a file behind the user's own link": ("put('cache/config.toml', 'x = \"/srv/ran\"\\n')", "", "cache/config.toml", {"before": "mkdir cache; ln -s cache .cargo"}),
}  # fmt: skip
for path, text in THROUGH.items():
    folder, _, name = path.partition("/")
    BY_A_LINK[f"{path} by a link"] = (f"put('cache/{name}', {text!r}); os.symlink('cache', {folder!r})", "", path)
ROWS = {
    row.pattern.replace("*", "x") + ("x" if row.pattern.endswith("/") else "")
    for row in TABLE
    if row is not GIT_FOLDER and row.only_in != "environment"
}
INSTALLED = {
    row.pattern.replace("*", "x") + ("x" if row.pattern.endswith("/") else "")
    for row in TABLE
    if row.pattern.startswith("site-packages/")
}
EVERY_ROW: dict[str, Row] = {
    "something for every row of the table": (
        f"""
for path in {sorted(ROWS)} + [str(Path(SITE).parent / name) for name in {sorted(INSTALLED)}]:
    try: put(path, 'x filter=x # ' + RUN)
    except OSError: pass  # it was put back in the middle
""",
        "",
        "|".join([*sorted(ROWS), *(f".venv/lib/*/{path}" for path in sorted(INSTALLED))]),
    )
}
"""The table as it stands; what is missing in it, only the other programs find."""
STARTS: dict[str, Row] = {
    "gdb's start file": ("put('.gdbinit', f'shell {RUN}\\n')", "gdb -batch -iex 'set auto-load safe-path /'", ".gdbinit", {"tool": "gdb"}),
    "pdb's start file": ("put('.pdbrc', f'import os; os.system(\"{RUN}\")\\n')", "echo q | .venv/bin/python -m pdb app.py", ".pdbrc"),
    "vim's start file": ("put('.vimrc', f'silent !{RUN}\\n')", "echo 'set exrc' > $HOME/.vimrc; TERM=dumb vim -T dumb --not-a-term -c 'qa!' < /dev/null", ".vimrc", {"tool": "vim"}),
    "vim's older start file": ("put('.exrc', f'silent !{RUN}\\n')", "echo 'set exrc' > $HOME/.vimrc; TERM=dumb vim -T dumb --not-a-term -c 'qa!' < /dev/null", ".exrc", {"tool": "vim"}),
    "npm's shell": ("put('tools/sh', SCRIPT, 0o755); put('.npmrc', f'script-shell={Path(\"tools/sh\").absolute()}\\n; /srv/ran\\n')", "npm --offline --no-update-notifier run hi", ".npmrc", {"tool": "npm"}),
    "a login in the workspace": ("put('.bash_profile', RUN)", "HOME=$PWD bash -l -c true", ".bash_profile", {"tool": "bash"}),
}  # fmt: skip
WORK: dict[str, tuple[str, str, str, Ground]] = {
    "a repository with a commit": ("repo('new')", "git -C new log -1 && git -C new status", "", "folder"),
    "a repository at the top": ("sh('git init -q .; git add -A; git commit -qm one')", "git log -1 && git status", "", "folder"),
    "a commit in the user's repository": ("put('app.py', 'x = 2\\n'); sh('git switch -qc two; git commit -qam two')", "git log -1 --format=%s two | grep two && git status && git diff main two | grep 'x = 2'", "", "repository"),
    "a clone": ("sh('git clone -q . copy')", "git -C copy log -1 && git -C copy status && git -C copy pull -q", "", "repository"),
    "a clone, bare": ("sh('git clone -q --bare . copy.git')", "git -C copy.git log -1", "", "repository"),
    "a worktree": ("sh('git worktree add -q tree')", "git -C tree status && git worktree list | grep tree", "", "repository"),
    "a submodule": ("repo('other'); sh('git -c protocol.file.allow=always submodule add -q ./other dep; git commit -qm dep')", "git submodule status | grep dep && git -C dep log -1 && git status", "", "repository"),
    "a remote": ("sh('git clone -q . copy; git -C copy remote add up https://example.org/x.git; git -C copy branch -q b; git -C copy config user.name me')", "git -C copy remote -v | grep up", "", "repository"),
    "a virtual environment": ("sh(f'{sys.executable} -m venv --without-pip env')", "env/bin/python -c pass", "", "repository"),
    "a path file in an environment made inside": ("sh(f'{sys.executable} -m venv --without-pip env'); put(SITE.replace('.venv', 'env') + '/mine.pth', str(Path('src').absolute()))", "ls env/lib/*/site-packages/mine.pth", "env/lib/*/site-packages/mine.pth", "repository"),
    "a package put into the user's environment": ("put(f'{SITE}/mine/__init__.py', 'x = 1'); put(f'{SITE}/mine-1.dist-info/METADATA', 'Name: mine')", ".venv/bin/python -c 'import mine'", "", "repository"),
    "a package with a command put into the user's environment": ("put(f'{SITE}/mine/__init__.py', 'x = 1'); put('.venv/bin/mine', '#!/bin/sh\\ntrue\\n', 0o755)", ".venv/bin/mine", ".venv/bin/mine", "repository"),
    "links to folders": ("put('build/lib/x', '1'); os.makedirs('deep'); os.symlink('../build/lib', 'deep/lib'); os.symlink('../build', 'deep/bin')", "grep 1 deep/lib/x deep/bin/lib/x", "", "repository"),
    "a job of a CI service": ("put('.github/workflows/test.yml', 'on: push')", "grep push .github/workflows/test.yml", ".github/workflows", "repository"),
    "a rebase": ("sh('git switch -qc t; git commit -q --allow-empty -m b; git rebase -q main'); put('tools/clean', 'x')", "git log -1 t && git status && cat tools/clean", "", "repository"),
    "a makefile beside an editor's settings": ("put('Makefile', 'all:\\n\\ttrue\\n')\ntry: put('.vscode/tasks.json', '{}')\nexcept OSError: pass", "make", ".vscode/tasks.json", "repository"),
    "checks before a commit": ("put('.pre-commit-config.yaml', 'repos: []\\n')", "test -e README.md", ".pre-commit-config.yaml", "repository"),
    "package.json, .gitignore and a README": ("put('package.json', '{\"scripts\": {\"hi\": \"true\"}}'); add('.gitignore', 'x\\n'); add('README.md', 'more\\n'); put('docs/config', 'x'); put('docs/HEAD', 'x')", "grep true package.json && grep x .gitignore && grep more README.md && grep x docs/config && git diff --stat | grep README", "", "repository"),
    "attributes": ("put('.gitattributes', '*.csv text eol=lf\\n')", "git status && grep eol .gitattributes", "", "repository"),
    "a stash, a tag and a merge": ("put('app.py', 'x = 3\\n'); sh('git stash -q; git stash pop -q; git commit -qam three; git tag -a v1 -m v1; git switch -qc b HEAD~1; git commit -q --allow-empty -m b; git switch -q main; git merge -q b -m m')", "git tag | grep v1 && git log -1 --format=%s | grep m && git fsck", "", "repository"),
    "a config that names folders": ("put('conf/config', '[core]\\n'); put('refs/x', '1'); put('objects/y', '2')", "grep core conf/config && ls refs/x objects/y", "", "folder"),
}  # fmt: skip
"""The program, what must succeed after the session, which path must be named to the user, and where it works."""
