# Steps of git checkpoints. `checkpoints.py` runs each in the session: the first argument names it.
step=$1; shift
case $step in
    make) ref=$1 last=$2 tree=$3 again=$4; shift 4 ;;
    compare) one=$1 other=$2; shift 2 ;;
esac
box=${TMPDIR:-/tmp}/.pinfold-checkpoints

# Of the paths on stdin, those of files that are too large.
large_files() {
    sed -z 's,^,./,' | xargs -0 -r sh -c 'find "$@" -maxdepth 0 -type f -size +"$LARGEST"k -print0 2> /dev/null || :' sh
}

case $step in make | compare)
    [ -d "$box" ] || mkdir -m 700 "$box"
    # Adds to the pathspecs what is mounted over the workspace: masked files, which are not what they seem, and protected
    # ones, which cannot be written. Where nothing can be mounted, the file cannot be read.
    while read -r _ _ _ _ place _; do
        case $place in *\\*)
            place=$(printf '%s' "$place" | sed 's/\\\([0-7][0-7][0-7]\)/\\0\1/g')
            place=$(printf '%b' "$place")
        esac
        case $place in "$PWD"/*) set -- "$@" ":(exclude,literal)${place#"$PWD"/}" ;; esac
    done 2> /dev/null < /proc/self/mountinfo || :
esac

case $step in

# Prints the git folder, then the settings of filter drivers, NUL after each.
begin)
    dir=$(git rev-parse --absolute-git-dir)
    printf '%s\0' "$dir"
    git config -z --name-only --get-regexp '^filter\.' || :
    ;;

# A commit of the files as they are, its message on stdin, unless it would be the same as the last. Arguments: the ref, the
# last commit and its tree if they are known and the index is that tree's, whether to begin anew, then pathspecs.
make)
    export GIT_INDEX_FILE="$box/index"
    if [ "$again" ]; then
        rm -rf "$GIT_INDEX_FILE" "$(git rev-parse --git-common-dir)/$ref.lock"
    fi
    [ ! -e "$GIT_INDEX_FILE.lock" ] || rm -f "$GIT_INDEX_FILE.lock"
    first=
    if [ -z "$last" ]; then
        last=$(git rev-parse -q --verify "$ref^{commit}") || {
            first=yes
            last=$(git rev-parse -q --verify 'HEAD^{commit}') || last=
        }
        [ "$first" ] || tree=$(git rev-parse "$last^{tree}")
        rm -f "$GIT_INDEX_FILE"
    fi
    if [ ! -e "$GIT_INDEX_FILE" ]; then
        if [ "$last" ]; then git read-tree "$last"; else git read-tree --empty; fi
        git update-index -q --refresh > /dev/null || :
    fi
    git ls-files -z -m -o --exclude-standard -- . "$@" > "$box/changed"
    if [ -s "$box/changed" ]; then
        large_files < "$box/changed" > "$box/large"
        if [ -s "$box/large" ]; then
            { printf '%s\0' . "$@"; sed -z 's,^\./,:(exclude\,literal),' "$box/large"; } > "$box/paths"
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
        commit=$(git commit-tree "$now" ${last:+-p "$last"})
        git update-ref "$ref" "$commit"
        echo "made $commit $now"
    fi
    ;;

# Exits with 3 when there is no such commit.
compare)
    git cat-file -e "$other^{commit}" 2> /dev/null || exit 3
    git diff-tree -r -z --no-renames --raw "$one" "$other" -- . "$@"
    ;;

# Of the paths on stdin, those that no checkpoint holds.
too-large) large_files | sed -z 's,^\./,,' ;;

# Of the paths on stdin, those where something is, or where a folder of theirs would have to be.
in-the-way)
    xargs -0 -r sh -c '
for path do
    here=$path
    if [ -e "$here" ] || [ -L "$here" ]; then printf "%s\0" "$path"; continue; fi
    while case $here in */*) here=${here%/*} ;; *) false ;; esac; do
        if [ -L "$here" ] || { [ -e "$here" ] && [ ! -d "$here" ]; }; then printf "%s\0" "$path"; break; fi
        [ ! -d "$here" ] || break
    done
done' sh
    ;;

remove) xargs -0 -r rm -f -- ;;

# Those that are empty.
remove-folders) xargs -0 -r rmdir -p -- 2> /dev/null || : ;;

write)
    export GIT_INDEX_FILE="$box/target"
    git read-tree "$1"
    git checkout-index -f -q -z --stdin
    rm -f "$GIT_INDEX_FILE"
    ;;
esac
