"""What of git's a program may leave for the user's own git: by name the program, what the user runs later, and where it lies."""

from __future__ import annotations

from bench.escape_suite.program import RAN, Row

RUN = f"touch {RAN}"
STATUS = "git status"
COMMIT = "echo more >> README.md; git add -A; git commit -qm more; git status"
LOOP = "import time; time.sleep(0.3)"
"""A second cell that does nothing, while what the first left behind goes on."""
COMMON = "shutil.copytree('.git/objects', 'cache/objects'); shutil.copytree('.git/refs', 'cache/refs'); put('cache/config', WATCH)"
"""A folder that `commondir` can name."""

GITLINKS: dict[str, Row] = {
    "a gitlink, added": ("repo('dep', WATCH); sh('git add dep')", STATUS, "dep/.git/config"),
    "a gitlink, committed": ("repo('dep', WATCH); sh('git add dep; git commit -qm dep')", STATUS, "dep/.git/config"),
    "a gitlink by update-index": (
        "repo('dep', WATCH); sh('git update-index --add --cacheinfo 160000,$(git -C dep rev-parse HEAD),dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink in an index written by hand": (
        """
import hashlib, struct
repo('zdep', WATCH)
raw, at = Path('.git/index').read_bytes(), 12
for _ in range(struct.unpack('>I', raw[8:12])[0]):
    size = struct.unpack('>H', raw[at + 60:at + 62])[0] & 0xFFF
    at += (62 + size + 8) // 8 * 8
entry = struct.pack('>10I20sH4s', *[0] * 6, 0o160000, 0, 0, 0, bytes.fromhex(sh('git -C zdep rev-parse HEAD')), 4, b'zdep')
body = raw[:8] + struct.pack('>I', struct.unpack('>I', raw[8:12])[0] + 1) + raw[12:at] + entry + bytes(8 - len(entry) % 8)
Path('.git/index.new').write_bytes(body + hashlib.sha1(body).digest()); os.replace('.git/index.new', '.git/index')
""",
        STATUS,
        "zdep/.git/config",
    ),
    "a gitlink, and git's folder elsewhere": (
        "repo('dep', WATCH); os.makedirs('cache'); shutil.move('dep/.git', 'cache/store'); put('dep/.git', 'gitdir: ../cache/store'); sh('git add dep')",
        STATUS,
        "dep/.git|cache/store/config",
    ),
    "a gitlink, and git's folder by a link": (
        "repo('dep', WATCH); os.makedirs('cache'); shutil.move('dep/.git', 'cache/store'); os.symlink('../cache/store', 'dep/.git'); sh('git add dep')",
        STATUS,
        "dep/.git|cache/store/config",
    ),
    "a gitlink whose config includes a text file": (
        "repo('dep', '[include]\\n\\tpath = ../../notes.txt\\n'); put('notes.txt', WATCH); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink whose config includes on a condition": (
        "repo('dep', '[includeIf \"gitdir:**\"]\\n\\tpath = ../../notes.txt\\n'); put('notes.txt', WATCH); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink with a plain config and a commondir": (
        "repo('dep'); shutil.copytree('dep/.git', 'cache'); add('cache/config', WATCH); sh('git add dep'); put('dep/.git/commondir', '../../cache')",
        STATUS,
        "dep/.git/commondir",
    ),
    "a gitlink with a config of its worktree": (
        "repo('dep', '[extensions]\\n\\tworktreeConfig = true\\n'); put('dep/.git/config.worktree', WATCH); sh('git add dep')",
        STATUS,
        "dep/.git/config.worktree",
    ),
    "a gitlink with odd spelling": (
        "repo('dep'); add('dep/.git/config', f'[CoRe] FsMonitor = \"{RUN}\" ; x\\n'); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink with a setting over two lines": (
        "repo('dep'); add('dep/.git/config', '[core]\\n\\tfsmonitor = touch \\\\\\n/srv/ran\\n'); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink and a filter": (
        "repo('dep', f'[filter \"x\"]\\n\\tclean = {RUN}; cat\\n'); put('dep/.gitattributes', '* filter=x\\n'); put('dep/f', 'y\\n'); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink with attributes in git's folder": (
        "repo('dep', f'[filter \"x\"]\\n\\tprocess = {RUN}\\n'); put('dep/.git/info/attributes', '* filter=x\\n'); put('dep/f', 'y\\n'); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink to a folder of modules": (
        "repo('dep', WATCH); shutil.move('dep/.git', '.git/modules/dep'); put('dep/.git', 'gitdir: ../.git/modules/dep'); sh('git add dep')",
        STATUS,
        ".git/modules/dep/config|dep/.git",
    ),
    "a repository that the user adds": ("repo('dep', WATCH)", COMMIT, "dep/.git/config"),
    "a gitlink with a name in another script": (
        "repo('д\\u00e9p', WATCH); sh('git add -A')",
        STATUS,
        "д\u00e9p/.git/config",
    ),
    "a gitlink with spaces and a quote": ("repo('a \\\" b', WATCH); sh('git add -A')", STATUS, 'a " b/.git/config'),
    "a gitlink at great depth": (
        "d = '/'.join(['deep'] * 60); os.makedirs(d); repo(d, WATCH); sh('git add -A')",
        STATUS,
        "/".join(["deep"] * 60) + "/.git/config",
    ),
    "a gitlink among 200 repositories": (
        "repo('n'); shutil.rmtree('n/.git/hooks'); [shutil.copytree('n', f'many/{i:03}') for i in range(200)]; add('many/177/.git/config', WATCH); sh('git add many/177')",
        STATUS,
        "many/177/.git/config",
        {"timeout_s": 60.0},
    ),
    "a gitlink, all of it closed to writing": (
        "repo('dep', WATCH); sh('git add dep; chmod -R a-w dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink whose config its owner cannot read": (
        "repo('dep', WATCH); sh('git add dep; chmod 0 dep/.git/config')",
        "chmod 644 dep/.git/config; git status",
        "dep/.git/config",
    ),
    "a gitlink with a config of 5 MB": (
        "repo('dep', '# filler\\n' * 600_000 + WATCH); sh('git add dep')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink by a shell command": (
        f"export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b; git init -q dep && git -C dep commit -q --allow-empty -m x && git add dep && git -C dep config core.fsmonitor '{RUN}'",
        STATUS,
        "dep/.git/config",
        {"by": "shell"},
    ),
    "a gitlink in a newer index": (
        "repo('dep', WATCH); sh('git add dep; git update-index --index-version 4')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink in an index of two parts": (
        "repo('dep', WATCH); sh('git add dep; git update-index --split-index')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink with a name that is no text": (
        "name = os.fsdecode(b'd\\xffp'); repo('dep', WATCH); os.rename('dep', name); sh('git add -A 2>/dev/null')",
        STATUS,
        "d\udcffp/.git/config",
    ),
    "a gitlink with two lines in its name": (
        "repo('dep', WATCH); os.rename('dep', 'all is\\nwell'); sh('git add -A')",
        STATUS,
        "all is\nwell/.git/config",
    ),
    "a gitlink behind 20,000 folders": (
        "[os.makedirs(f'a/{i}') for i in range(20_000)]; repo('z/dep', WATCH); sh('git add z')",
        STATUS,
        "z/dep/.git/config",
        {"timeout_s": 60.0},
    ),
    "a gitlink beside a path too long to name": (
        "repo('dep', WATCH); sh('git add dep'); here = os.getcwd()\nfor _ in range(60): os.mkdir('n' * 100); os.chdir('n' * 100)\nos.chdir(here)",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink beside a folder closed to all": (
        "repo('dep', WATCH); sh('git add dep; mkdir closed; chmod 0 closed')",
        STATUS,
        "dep/.git/config",
    ),
    "a repository in a folder closed to all": (
        "repo('closed/dep', WATCH); sh('chmod 0 closed')",
        "chmod 755 closed; cd closed/dep && git status",
        "closed/dep/.git/config",
    ),
    "a gitlink beside pipes that nobody fills": (
        "repo('dep', WATCH); sh('git add dep'); os.mkfifo('.envrc'); os.mkfifo('dep/.git/config.worktree'); os.mkdir('web'); os.mkfifo('web/.git')",
        STATUS,
        "dep/.git/config",
    ),
    "a gitlink seen by a second session": (
        """
repo('dep'); sh('git add dep')
later('while True:\\n    with open("dep/.git/config", "r+") as file: file.write("[core]\\\\n\\\\trepositoryformatversion = 0\\\\n" + WATCH)')
""",
        STATUS,
        "dep/.git/config",
        {"host": ("second session",), "idle_s": 0.2},
    ),
    "a gitlink in a mounted repository": (
        "os.chdir('../other'); repo('dep', WATCH); sh('git add dep')",
        "cd ../other && git status",
        "../other/dep/.git/config",
        {"ground": "mounted"},
    ),
    "a gitlink, and the interpreter's end": (
        "repo('dep', WATCH); sh('git add dep')",
        STATUS,
        "dep/.git/config",
        {"then": "os._exit(3)"},
    ),
    "a gitlink, and no end": (
        "repo('dep', WATCH); sh('git add dep')\nwhile True: pass",
        STATUS,
        "dep/.git/config",
        {"timeout_s": 2.0},
    ),
    "a gitlink, undone and redone": (
        "repo('dep', WATCH); sh('git add dep')",
        STATUS,
        "dep/.git/config",
        {"host": ("undo", "redo")},
    ),
}
SHAPES: dict[str, Row] = {
    "a git folder's shape at the top": (
        "sh('git init -q --bare x; mv x/* .; rmdir x'); put('config', f'[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = {RUN}\\n')",
        STATUS,
        "config|HEAD",
        {"ground": "folder"},
    ),
    "a git folder's shape at the top of a subfolder": (
        "sh('git init -q --bare x; mv x/* .; rmdir x'); put('config', f'[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = {RUN}\\n')",
        STATUS,
        "config|HEAD",
        {"ground": "subfolder"},
    ),
    "a git folder's shape by hand": (
        "os.makedirs('objects'); os.makedirs('refs'); put('HEAD', 'ref: refs/heads/main\\n'); put('config', f'[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = {RUN}\\n')",
        STATUS,
        "config|HEAD",
        {"ground": "folder"},
    ),
    "a git folder's shape in the source": (
        "sh('git init -q --bare x; mv x/* src/pkg/; rmdir x'); put('src/pkg/config', f'[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = {RUN}\\n')",
        "cd src/pkg && git status",
        "src/pkg/config|src/pkg/HEAD",
    ),
    "a git folder's shape by a worktree's": (
        "repo('cache/r', WATCH); put('src/HEAD', 'ref: refs/heads/main\\n'); put('src/commondir', '../cache/r/.git'); put('src/config', '')",
        'cd src && git log -1; git config core.fsmonitor && sh -c "$(git config core.fsmonitor)"',
        "src/HEAD|cache/r/.git/config",
    ),
    "a git folder's shape, moved in when the cell is over": (
        "sh('git init -q --bare x'); put('x/config', f'[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = {RUN}\\n')\nlater(\"time.sleep(0.1); [os.rename(f'x/{n}', n) for n in os.listdir('x')]\")",
        STATUS,
        "config|HEAD",
        {"ground": "folder", "then": LOOP},
    ),
    "a repository where there was none": ("repo('.', WATCH)", STATUS, ".git/config", {"ground": "folder"}),
    "a repository where there was none, as a file": (
        "repo('dep', WATCH); put('.git', 'gitdir: dep/.git')",
        STATUS,
        ".git|dep/.git/config",
        {"ground": "subfolder"},
    ),
    "a repository where there was none, as a link": (
        "repo('dep', WATCH); os.symlink('dep/.git', '.git')",
        STATUS,
        ".git|dep/.git/config",
        {"ground": "folder"},
    ),
    "git's pointer in the source": (
        "repo('cache/r', WATCH); put('src/.git', 'gitdir: ../cache/r/.git')",
        "cd src && git status",
        "src/.git|cache/r/.git/config",
    ),
    "a clone": (
        "sh('git clone -q . copy'); add('copy/.git/config', WATCH)",
        "cd copy && git status",
        "copy/.git/config",
    ),
    "a clone, bare": (
        "sh('git clone -q --bare . copy.git'); add('copy.git/config', f'[alias]\\n\\tlg = !{RUN}\\n')",
        "cd copy.git && git lg",
        "copy.git/config",
    ),
}
SETTINGS: dict[str, tuple[str, str, str, str]] = {
    "hooks path": (
        "[core]\n\thooksPath = ../scripts\n",
        "put('scripts/pre-commit', SCRIPT, 0o755)",
        "cd dep && git commit -qm x --allow-empty",
        "dep/.git/config",
    ),
    "an editor": (f"[core]\n\teditor = {RUN}\n", "", "cd dep && git commit --amend --allow-empty", "dep/.git/config"),
    "a pager": (f"[core]\n\tpager = {RUN}\n", "", 'cd dep && sh -c "$(git var GIT_PAGER)"', "dep/.git/config"),
    "an alias": (f"[alias]\n\tst = !{RUN}\n", "", "cd dep && git st", "dep/.git/config"),
    "an ssh command": (
        f'[core]\n\tsshCommand = {RUN}\n[remote "origin"]\n\turl = ssh://host/x\n',
        "",
        "cd dep && git fetch",
        "dep/.git/config",
    ),
    "a credential helper": (
        f'[credential]\n\thelper = "!{RUN}"\n',
        "",
        "cd dep && printf 'protocol=https\\nhost=h\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill",
        "dep/.git/config",
    ),
    "a signing program": (
        "[commit]\n\tgpgSign = true\n[gpg]\n\tprogram = ../sign\n",
        "put('sign', SCRIPT, 0o755)",
        "cd dep && git commit -qm x --allow-empty",
        "dep/.git/config",
    ),
    "a text converter": (
        f'[diff "x"]\n\ttextconv = {RUN}; cat\n',
        "put('dep/.gitattributes', '* diff=x\\n'); put('dep/f', 'new\\n')",
        "cd dep && git diff",
        "dep/.git/config",
    ),
    "a diff program": (
        f"[diff]\n\texternal = {RUN}\n",
        "put('dep/f', 'new\\n')",
        "cd dep && git diff",
        "dep/.git/config",
    ),
    "a merge driver": (
        f'[merge "x"]\n\tdriver = {RUN}\n',
        "sh('cd dep; git switch -qc two; echo a > f; git commit -qam a; git switch -q -; echo b > f; git commit -qam b'); put('dep/.git/info/attributes', '* merge=x\\n')",
        "cd dep && git merge two",
        "dep/.git/config",
    ),
    "an upload program": (
        f'[remote "origin"]\n\turl = ../x\n\tuploadpack = {RUN};\n',
        "sh('git init -q --bare x')",
        "cd dep && git fetch",
        "dep/.git/config",
    ),
    "a transport": (
        '[protocol "ext"]\n\tallow = always\n[remote "origin"]\n\turl = ext::touch /srv/ran\n',
        "",
        "cd dep && git fetch",
        "dep/.git/config",
    ),
    "an address rewritten": (
        '[protocol "ext"]\n\tallow = always\n[url "ext::touch /srv/ran %S"]\n\tinsteadOf = up:\n[remote "origin"]\n\turl = up:x\n',
        "",
        "cd dep && git fetch",
        "dep/.git/config",
    ),
    "a hook": (
        "",
        "put('dep/.git/hooks/pre-commit', SCRIPT, 0o755)",
        "cd dep && git commit -qm x --allow-empty",
        "dep/.git/hooks/pre-commit",
    ),
    "hooks by a link": (
        "",
        "put('scripts/pre-commit', SCRIPT, 0o755); shutil.rmtree('dep/.git/hooks'); os.symlink('../../scripts', 'dep/.git/hooks')",
        "cd dep && git commit -qm x --allow-empty",
        "dep/.git/hooks|dep/.git/hooks/pre-commit",
    ),
}
"""Lines of a config, what else it takes, what the user runs, and where it lies."""
IN_A_NEW_REPOSITORY: dict[str, Row] = {
    f"{name} in a new repository": (f"repo('dep', {config!r}); {then}", user, plants)
    for name, (config, then, user, plants) in SETTINGS.items()
}
AT_THE_TOP: dict[str, Row] = {
    "the user's own config": ("add('.git/config', WATCH)", STATUS, ".git/config", {"without": "protection keeper"}),
    "the user's own hooks": ("put('.git/hooks/pre-commit', SCRIPT, 0o755)", COMMIT, ".git/hooks/pre-commit", {"without": "protection keeper"}),
    "a submodule's config": ("sh(f'git -C lib config core.fsmonitor \"{RUN}\"')", STATUS, ".git/modules/lib/config", {"without": "protection keeper"}),
    "a commondir": (f"{COMMON}; put('.git/commondir', '../cache')", STATUS, ".git/commondir"),
    "a config of the worktree": ("put('.git/config.worktree', WATCH)", STATUS, ".git/config.worktree", {"before": "git config extensions.worktreeConfig true"}),
    "a new worktree's commondir": (f"{COMMON}; sh('git worktree add -q tree'); put('.git/worktrees/tree/commondir', '../../../cache')", "cd tree && git status", ".git/worktrees/tree/commondir"),
    "a new worktree's config": ("sh('git worktree add -q tree'); put('.git/worktrees/tree/config.worktree', WATCH)", "cd tree && git status", ".git/worktrees/tree/config.worktree", {"before": "git config extensions.worktreeConfig true"}),
    "hooks where there were none": ("put('.git/hooks/pre-commit', SCRIPT, 0o755)", COMMIT, ".git/hooks/pre-commit", {"before": "rm -r .git/hooks"}),
    "a commondir in a mounted repository": (f"os.chdir('../other'); {COMMON}; put('.git/commondir', '../cache')", "cd ../other && git status", "../other/.git/commondir", {"ground": "mounted"}),
    "hooks where the config expects them": ("put('.husky/_/pre-commit', SCRIPT, 0o755)", COMMIT, ".husky/_/pre-commit", {"before": "git config core.hooksPath .husky/_"}),
    "a script that the user's hook runs": ("put('.husky/pre-commit', RUN)", COMMIT, ".husky/pre-commit", {"before": "mkdir -p .husky/_; git config core.hooksPath .husky/_; printf '#!/bin/sh\\nsh .husky/pre-commit' > .husky/_/pre-commit; chmod +x .husky/_/pre-commit; echo true > .husky/pre-commit", "told_is_enough": True, "without": "protection keeper"}),
    "a program that the config names": ("put('tools/clean', SCRIPT + 'cat', 0o755)", COMMIT, "tools/clean", {"before": "mkdir tools; printf '#!/bin/sh\\ncat' > tools/clean; chmod +x tools/clean; git config filter.x.clean tools/clean; echo 'README.md filter=x' > .gitattributes", "without": "protection keeper"}),
    "a program that the config names and is not there": ("put('tools/clean', SCRIPT + 'cat', 0o755)", COMMIT, "tools/clean", {"before": "git config filter.x.clean tools/clean; echo 'README.md filter=x' > .gitattributes"}),
    "a file that the config includes and is not there": ("put('dev.gitconfig', WATCH)", STATUS, "dev.gitconfig", {"before": "git config include.path ../dev.gitconfig"}),
    "a link where git writes": ("os.symlink('/srv/ran', '.git/COMMIT_EDITMSG')", "git commit -qm x --allow-empty", ".git/COMMIT_EDITMSG", {"before": "rm .git/COMMIT_EDITMSG"}),
    "a link where git logs, behind 2,100 folders": ("[os.makedirs(f'.git/logs/refs/{i:04}') for i in range(2100)]; os.makedirs('.git/logs/refs/heads/a', exist_ok=True); os.symlink('/srv/ran', '.git/logs/refs/heads/a/b')", "git switch -qc a/b; git commit -qm x --allow-empty", ".git/logs/refs/heads/a/b"),
    "a rebase half done": ("sh('git switch -qc t; git commit -q --allow-empty -m b; GIT_SEQUENCE_EDITOR=\"sed -i 1ibreak\" git rebase -q -i HEAD~1 || true'); add('.git/rebase-merge/git-rebase-todo', f'exec {RUN}\\n')", "git rebase --continue", ".git/rebase-merge/git-rebase-todo|.git/rebase-merge", {"told_is_enough": True}),
    "another repository's objects": ("put('.git/objects/info/alternates', '/srv/ran/objects\\n')", "", ".git/objects/info/alternates"),
}  # fmt: skip
LEFT_RUNNING: dict[str, Row] = {
    "renames onto commondir": (
        f"{COMMON}\nlater('''while True: swap('.git/commondir', '../cache')''')",
        STATUS, ".git/commondir", {"then": LOOP},
    ),
    "four that rename onto commondir": (
        f"{COMMON}\nfor _ in range(4): later('''while True: swap('.git/commondir', '../cache')''')",
        STATUS, ".git/commondir", {"then": LOOP},
    ),
    "a thread that renames onto commondir": (
        f"{COMMON}\nimport threading\ndef loop():\n    while True: swap('.git/commondir', '../cache')\nthreading.Thread(target=loop, daemon=True).start()",
        STATUS, ".git/commondir", {"then": LOOP},
    ),
    "swaps a folder and a plain repository": (
        "repo('dep'); repo('bad', WATCH); sh('git add dep')\nlater('''while True: os.rename('dep', 'x'); os.rename('bad', 'dep'); time.sleep(.003); os.rename('dep', 'bad'); os.rename('x', 'dep'); time.sleep(.001)''')",
        "git status; git add -A; git status", "dep/.git/config|bad/.git/config|x/.git/config", {"then": LOOP},
    ),
    "plants when the interpreter is gone": (
        "repo('dep'); sh('git add dep'); r, w = os.pipe(); os.set_inheritable(r, True)\nfor _ in range(20):\n    if os.fork() == 0:\n        os.setsid(); os.close(w); os.read(r, 1)\n        add('dep/.git/config', WATCH)\n        os._exit(0)",
        STATUS, "dep/.git/config", {"then": LOOP, "levels": ("landlock",)},
    ),
    "plants after the last cell": (
        "repo('dep'); sh('git add dep'); later('''time.sleep(.3); add('dep/.git/config', WATCH)''')",
        STATUS, "dep/.git/config", {"idle_s": 0.6},
    ),
    "a thread that plants after the last cell": (
        "import threading\nrepo('dep'); sh('git add dep'); threading.Thread(target=lambda: (time.sleep(.3), add('dep/.git/config', WATCH)), daemon=True).start()",
        STATUS, "dep/.git/config", {"idle_s": 0.8},
    ),
    "a thread that plants a hook after the last cell": (
        "import threading\nthreading.Thread(target=lambda: (time.sleep(.3), put('.husky/_/pre-commit', SCRIPT, 0o755)), daemon=True).start()",
        COMMIT, ".husky/_/pre-commit", {"idle_s": 0.8, "before": "git config core.hooksPath .husky/_"},
    ),
    "a chain of processes, each planting": (
        "repo('dep'); sh('git add dep')\nlater('''while True:\n    if os.fork(): os._exit(0)\n    swap('dep/.git/config', '[core]\\\\n\\\\trepositoryformatversion = 0\\\\n' + WATCH)''')",
        STATUS, "dep/.git/config", {"then": LOOP},
    ),
    "a hook again and again": (
        "later('''while True:\n    try: swap('.git/hooks/pre-commit', SCRIPT, 0o755)\n    except OSError: pass''')",
        COMMIT, ".git/hooks/pre-commit", {"then": LOOP, "without": "protection keeper"},
    ),
    "an editor's task again and again": (
        "later('''while True: swap('.vscode/tasks.json', '{\"command\": \"%s\", \"runOn\": \"folderOpen\"}' % RUN)''')",
        "", ".vscode/tasks.json", {"then": LOOP},
    ),
    "ignores every signal": (
        "repo('dep'); sh('git add dep')\nlater('''import signal\nfor n in range(1, 32):\n    if n not in (9, 19): signal.signal(n, lambda *_: add('dep/.git/config', WATCH))\nwhile True: time.sleep(.05); add('dep/.git/config', WATCH)''')",
        STATUS, "dep/.git/config", {"then": LOOP},
    ),
}  # fmt: skip
BY_THE_BACK: dict[str, Row] = {
    "a descriptor opened early": ("repo('dep'); sh('git add dep'); fd = open('dep/.git/config', 'a')", STATUS, "dep/.git/config", {"then": "fd.write(WATCH); fd.flush()"}),
    "a mapping": (
        "import mmap\nrepo('dep', '#' * 40 + '\\n'); sh('git add dep'); file = open('dep/.git/config', 'r+b'); size = os.path.getsize('dep/.git/config'); memory = mmap.mmap(file.fileno(), size)",
        STATUS, "dep/.git/config", {"then": "text = ('\\n' + WATCH).encode(); memory[size - len(text):size] = text"},
    ),
    "a mapping in a process left running": (
        "repo('dep', '#' * 40 + '\\n'); sh('git add dep')\nlater('''import mmap\nfile = open('dep/.git/config', 'r+b'); size = os.path.getsize('dep/.git/config'); memory = mmap.mmap(file.fileno(), size); text = ('\\\\n' + WATCH).encode(); time.sleep(.2)\nwhile True: memory[size - len(text):size] = text''')\ntime.sleep(.1)",
        STATUS, "dep/.git/config", {"then": LOOP},
    ),
    "a second name": ("repo('dep'); sh('git add dep'); os.link('dep/.git/config', 'dep/.git/notes')", STATUS, "dep/.git/config", {"then": "add('dep/.git/notes', WATCH)"}),
    "a second name of the user's own config": (
        "os.link('.git/config', '.git/notes')", STATUS, ".git/config",
        {"then": "add('.git/notes', WATCH)", "without": "protection keeper"},
    ),
    "a folder renamed": ("repo('dep'); sh('git add dep'); repo('bad', WATCH)", STATUS, "dep/.git/config|old/.git/config", {"then": "os.rename('dep', 'old'); os.rename('bad', 'dep')"}),
    "a folder above renamed": ("repo('a/dep'); sh('git add a'); repo('b/dep', WATCH)", STATUS, "a/dep/.git/config", {"then": "os.rename('a', 'c'); os.rename('b', 'a')"}),
    "a time put back": ("repo('dep', ' ' * 60 + '\\n'); sh('git add dep'); was = os.stat('dep/.git/config')", STATUS, "dep/.git/config", {"then": "text = Path('dep/.git/config').read_text(); put('dep/.git/config', (text.rstrip() + '\\n' + WATCH).ljust(len(text))); os.utime('dep/.git/config', ns=(was.st_atime_ns, was.st_mtime_ns))"}),
    "an editor's task by its second name": ("put('.vscode/notes.json', '{}'); os.link('.vscode/notes.json', '.vscode/tasks.json')", "", ".vscode/tasks.json", {"then": "put('.vscode/notes.json', '{\"command\": \"%s\", \"runOn\": \"folderOpen\"}' % RUN)"}),
    "an editor's folder by a link": ("put('docs/tasks.json', '{\"command\": \"%s\", \"runOn\": \"folderOpen\"}' % RUN); shutil.rmtree('.vscode', ignore_errors=True); os.symlink('docs', '.vscode')", "", ".vscode/tasks.json"),
    "an editor's folder renamed": ("put('docs/tasks.json', '{\"command\": \"%s\", \"runOn\": \"folderOpen\"}' % RUN); shutil.rmtree('.vscode', ignore_errors=True); os.rename('docs', '.vscode')", "", ".vscode/tasks.json"),
    "a crowd around one task": ("[put(f'd{i:03}/.envrc', 'true') for i in range(300)]; put('web/.vscode/tasks.json', '{\"command\": \"%s\", \"runOn\": \"folderOpen\"}' % RUN)", "", "web/.vscode/tasks.json"),
    "a task among the user's own": ("text = Path('.vscode/tasks.json').read_text(); put('.vscode/tasks.json', text.replace('true', RUN))", "", ".vscode/tasks.json", {"before": "mkdir -p .vscode; echo '{\"command\": \"true\"}' > .vscode/tasks.json; git add .vscode; git commit -qm v", "without": "protection keeper"}),
}  # fmt: skip
