"""Reads secrets that lie in the workspace, and changes what steers the agent."""

from __future__ import annotations

from bench.escape_suite.program import hostile
from bench.escape_suite.scene import MASKED, PROTECTED

READS = {f"open {name}": f"print(open({name!r}).read())" for name in MASKED} | {
    "the other name of a secret": "print(open('hard').read())",
    "what a secret's link leads to": "print(open('pointed-at').read())",
    "a link to a secret": "os.symlink('.env', 'mine'); print(open('mine').read())",
    "a secret's folder moved": "os.rename('deep', 'moved'); print(open('moved/server.pem').read())",
    "a second name made now": "tried(lambda: os.link('.env', 'mine')); print(open('.env').read())",
    "a secret by descriptor": "fd = os.open('.env', os.O_PATH); print(open(f'/proc/self/fd/{fd}').read())",
    "a secret by copying all": "subprocess.run(['cp', '-r', 'keys', 'copied']); print(open('copied/id_ed25519').read())",
    "grep": "print(subprocess.run(['grep', '-r', '.', '--exclude=x', '.'], capture_output=True, text=True).stdout)",
    "tar": "subprocess.run(['tar', 'cf', '/tmp/x.tar', '.']); print(open('/tmp/x.tar', 'rb').read())",
}
CHANGES = {f"write {name}": f"open({name!r}, 'w').write('changed')" for name in PROTECTED} | {
    "remove AGENTS.md": "os.remove('AGENTS.md')",
    "put a file in its place": "open('mine', 'w').write('x'); os.replace('mine', 'CLAUDE.md')",
    "move it away": "os.rename('pinfold.toml', 'aside')",
    "a link in its place": "os.rename('.mcp.json', 'aside'); open('mine', 'w').write('x'); os.symlink('mine', '.mcp.json')",
    "truncate it": "os.truncate('AGENTS.md', 0)",
    "a mapping of it": "import mmap\nf = open('AGENTS.md', 'r+b'); m = mmap.mmap(f.fileno(), 0); m[0:2] = b'NO'; m.flush()",
    "a second name for it": "os.link('AGENTS.md', 'mine'); open('mine', 'w').write('x')",
    "its folder moved away": "os.rename('.git', 'aside'); os.makedirs('.git/hooks'); open('.git/config', 'w').write('x')",
    "a folder of agents moved away": "os.rename('.agents', 'aside')",
    "git config": "subprocess.run(['git', 'config', '--file', '.git/config', 'core.hooksPath', '/tmp'])",
    "a shell's redirection": "subprocess.run(['bash', '-c', 'echo x >> AGENTS.md'])",
    "sed": "subprocess.run(['sed', '-i', 's/as/AS/', 'CLAUDE.md'])",
    "all of it removed": "import shutil; shutil.rmtree('.', ignore_errors=True)",
}
SET_ID = {
    "a file with a set-id bit rewritten": "tried(lambda: os.chmod('tool', 0o755)); open('tool', 'w').write('x')",
    "a file with a set-id bit replaced": "open('mine', 'w').write('x'); os.replace('mine', 'tool')",
}
ASIDE = {
    # A folder that holds a mount can be renamed; what is then made in its place is the program's own.
    "a submodule's folder put aside": "os.rename('sub', 'put-aside'); os.mkdir('sub'); open('sub/.git', 'w').write('gitdir: /tmp/mine')"
}
PROGRAMS = [
    *hostile("guarded", "masks", "secret masked", READS),
    *hostile("guarded", "protection keeper", "guarded", CHANGES),
    *hostile("guarded", "protection", "tool", SET_ID),
    *hostile("guarded", "keeper", "guarded", ASIDE),
]
