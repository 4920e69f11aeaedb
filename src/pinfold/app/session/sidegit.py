"""What git is told to do for a checkpoint: shell scripts for the session, and the surroundings git runs in there.

Nothing here runs on the host. The user's index, HEAD and branches are never written: every script works on an index of
its own, below the session's TMPDIR, and the only ref it moves is the session's.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct

from pinfold.sandbox.guards.secret_files import NAMES as SECRET_NAMES

REF = "refs/pinfold/checkpoints/"
LARGEST_KB = 128 << 10
"""A file larger than this is in no checkpoint: git would keep all of it, every time it changes."""
_OFF = (
    *("core.fsmonitor", "core.untrackedCache", "core.splitIndex", "core.sparseCheckout", "core.logAllRefUpdates"),
    *("core.autocrlf", "core.safecrlf", "commit.gpgSign", "advice.addEmbeddedRepo", "submodule.recurse"),
)
_SETTINGS = {
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "i18n.commitEncoding": "UTF-8",
    "gc.auto": "0",
    "core.fileMode": "true",
    "core.symlinks": "true",
    **dict.fromkeys(_OFF, "false"),
}
"""Over whatever the repository's own config says: what would run something, or keep files out of a checkpoint."""
_SWITCHES = ("GIT_CONFIG_NOSYSTEM", "GIT_ATTR_NOSYSTEM", "GIT_NO_LAZY_FETCH", "GIT_NO_REPLACE_OBJECTS")
_FILTER = {"clean": "", "smudge": "", "process": "", "required": "false"}

BEGIN = r"""
dir=$(git rev-parse --absolute-git-dir)
printf '%s\0' "$dir"
git config -z --name-only --get-regexp '^filter\.' || :
"""
"""Prints the git folder, then the settings of filter drivers, NUL after each."""

_OUTSIDE = r"""
box=${TMPDIR:-/tmp}/.pinfold-checkpoints
[ -d "$box" ] || mkdir -m 700 "$box"
while read -r _ _ _ _ place _; do
    case $place in *\\*)
        place=$(printf '%s' "$place" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')
        place=$(printf '%b' "$place")
    esac
    case $place in "$PWD"/*) set -- "$@" ":(exclude,literal)${place#"$PWD"/}" ;; esac
done 2> /dev/null < /proc/self/mountinfo || :
"""
"""Adds to the pathspecs what is mounted over the workspace: masked files, which are not what they seem, and protected
ones, which cannot be written. Where nothing can be mounted, the file cannot be read."""

_LARGE = r"""sed -z 's,^,./,' | xargs -0 -r sh -c 'find "$@" -maxdepth 0 -type f -size +"$LARGEST"k -print0 2> /dev/null || :' sh"""

MAKE = rf"""
ref=$1 last=$2 tree=$3 again=$4; shift 4
{_OUTSIDE}
export GIT_INDEX_FILE="$box/index"
if [ "$again" ]; then
    rm -rf "$GIT_INDEX_FILE" "$(git rev-parse --git-common-dir)/$ref.lock"
fi
[ ! -e "$GIT_INDEX_FILE.lock" ] || rm -f "$GIT_INDEX_FILE.lock"
first=
if [ -z "$last" ]; then
    last=$(git rev-parse -q --verify "$ref^{{commit}}") || {{
        first=yes
        last=$(git rev-parse -q --verify 'HEAD^{{commit}}') || last=
    }}
    [ "$first" ] || tree=$(git rev-parse "$last^{{tree}}")
    rm -f "$GIT_INDEX_FILE"
fi
if [ ! -e "$GIT_INDEX_FILE" ]; then
    if [ "$last" ]; then git read-tree "$last"; else git read-tree --empty; fi
    git update-index -q --refresh > /dev/null || :
fi
git ls-files -z -m -o --exclude-standard -- . "$@" > "$box/changed"
if [ -s "$box/changed" ]; then
    {{ {_LARGE}; }} < "$box/changed" > "$box/large"
    if [ -s "$box/large" ]; then
        {{ printf '%s\0' . "$@"; sed -z 's,^\./,:(exclude\,literal),' "$box/large"; }} > "$box/paths"
        set -- --pathspec-from-file="$box/paths" --pathspec-file-nul
    else
        set -- -- . "$@"
    fi
    git add -A --ignore-errors "$@" > /dev/null || [ $? -lt 128 ]
elif [ "$tree" ]; then
    echo "same $last $tree"
    exit
fi
now=$(git write-tree)
if [ "$now" = "$tree" ]; then
    echo "same $last $tree"
else
    commit=$(git commit-tree "$now" ${{last:+-p "$last"}})
    git update-ref "$ref" "$commit"
    echo "made $commit $now"
fi
"""
"""A commit of the files as they are, its message on stdin, unless it would be the same as the last.

Arguments: the ref, the last commit and its tree if they are known and the index is that tree's, whether to begin anew,
then pathspecs."""

COMPARE = rf"""
one=$1 other=$2; shift 2
{_OUTSIDE}
git cat-file -e "$other^{{commit}}" 2> /dev/null || exit 3
git diff-tree -r -z --no-renames --raw "$one" "$other" -- . "$@"
"""
TOO_LARGE = f"{_LARGE} | sed -z 's,^\\./,,'"
"""Of the paths on stdin, those that no checkpoint holds."""

IN_THE_WAY = r"""xargs -0 -r sh -c '
for path do
    here=$path
    if [ -e "$here" ] || [ -L "$here" ]; then printf "%s\0" "$path"; continue; fi
    while case $here in */*) here=${here%/*} ;; *) false ;; esac; do
        if [ -L "$here" ] || { [ -e "$here" ] && [ ! -d "$here" ]; }; then printf "%s\0" "$path"; break; fi
        [ ! -d "$here" ] || break
    done
done' sh"""
"""Of the paths on stdin, those where something is, or where a folder of theirs would have to be."""

REMOVE = r"""xargs -0 -r rm -f --"""
REMOVE_FOLDERS = r"""xargs -0 -r rmdir -p -- 2> /dev/null || :"""
"""Those that are empty."""
WRITE = r"""
box=${TMPDIR:-/tmp}/.pinfold-checkpoints
export GIT_INDEX_FILE="$box/target"
git read-tree "$1"
git checkout-index -f -q -z --stdin
rm -f "$GIT_INDEX_FILE"
"""


def secret_pathspecs() -> list[str]:
    """Pathspecs of what is in no checkpoint: secrets read as empty inside, or are what no history should hold."""
    return [f":(exclude,icase,glob)**/{name}{rest}" for name in SECRET_NAMES for rest in ("", "/**")]


def git_environment(gitdir: str = ".git", drivers: Iterable[str] = ()) -> dict[str, str]:
    """The whole environment of git. `drivers`: filters of the repository, which are not to run."""
    settings = dict(_SETTINGS)
    for driver in drivers:
        settings |= {f"filter.{driver}.{key}": value for key, value in _FILTER.items()}
    environment = {
        "PATH": "/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin",
        "HOME": "/nonexistent",
        "LC_ALL": "C",
        "LARGEST": str(LARGEST_KB),
        "GIT_DIR": gitdir,
        "GIT_WORK_TREE": ".",
        "GIT_TERMINAL_PROMPT": "0",
        **dict.fromkeys(("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"), "/dev/null"),
        **dict.fromkeys(_SWITCHES, "1"),
        "GIT_CONFIG_COUNT": str(len(settings)),
    }
    for who in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{who}_NAME": "Pinfold", f"GIT_{who}_EMAIL": "pinfold@localhost"}
    for number, (key, value) in enumerate(settings.items()):
        environment |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return environment


class Changes(Struct, frozen=True, kw_only=True):
    """What must be done to the files of one checkpoint to make them those of another. Paths relative to the workspace."""

    gone: list[bytes]
    changed: list[bytes]
    new: list[bytes]
    nested: list[bytes]
    """Repositories of their own; only their commit is in a checkpoint, and nothing is done to them."""


def parse_changes(raw: bytes) -> Changes:
    """What `git diff-tree --raw -z` prints; untrusted, and only ever given back to the session."""
    found = Changes(gone=[], changed=[], new=[], nested=[])
    words = raw.split(b"\0")
    for head, path in zip(words[::2], words[1::2], strict=False):
        if head.count(b" ") != 4:
            continue
        old, new, *_, status = head.lstrip(b":").split(b" ")
        if b"160000" in (old, new):
            found.nested.append(path)
        elif status == b"D":
            found.gone.append(path)
        else:
            (found.new if status == b"A" else found.changed).append(path)
    return found
