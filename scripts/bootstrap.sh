# Sourced by ./pinfold and ./check. `bootstrap run` or `bootstrap dev` leaves a .venv that matches uv.lock,
# or exits 2 after one line that says what to do.
#
# With nothing to do it starts no program: it compares the times of a few stamp files. It keeps to bash 3.2,
# which is what macOS has.

root=$(CDPATH='' cd -P -- "${BASH_SOURCE[0]%/*}/.." && pwd)
venv=$root/.venv
state=$root/.uv
oldest_uv=0.9
python=

bootstrap() {
  is_current "$1" || set_up "$1" || exit
  is_compiled || compile
}

is_current() {
  local stamp=$venv/.pinfold-$1 made_in=
  [[ -x $venv/bin/python && -x $venv/bin/pinfold && $stamp -nt $root/uv.lock &&
    $stamp -nt $root/pyproject.toml && $stamp -nt $root/scripts/bootstrap.sh ]] || return 1
  [[ $1 == run || -x $state/uv ]] || return 1
  # A copied or renamed checkout has a .venv whose scripts still start the old one.
  IFS= read -r made_in <"$stamp"
  [[ $made_in == "$root" ]]
}

is_compiled() {
  local source
  for source in "$root"/src/pinfold/{,*/,*/*/,*/*/*/}*.py; do
    [[ ! $source -nt $venv/.pinfold-compiled ]] || return 1
  done
}

compile() {
  # Explicitly, because PYTHONDONTWRITEBYTECODE would make every start pay for it again.
  [[ -w $venv && -w $root/src/pinfold ]] || return 0
  : >"$venv/.pinfold-compiling"
  "$venv/bin/python" -m compileall -qq "$root/src/pinfold" >&2
  mv -f "$venv/.pinfold-compiling" "$venv/.pinfold-compiled" 2>/dev/null # another run may have been first
}

# For `pinfold extras add`: installs extras of the project; from then on every set-up brings them.
add_extras() {
  set_up run "$@" || exit
}

# set_up KIND [EXTRA ...]. A subshell, so that the lock, the traps and the environment end with it.
set_up() (
  trap 'say "interrupted; run it again to go on"; exit 130' INT TERM
  SECONDS=0
  { mkdir -p "$state" && [[ -w $state && -w $root ]]; } 2>/dev/null ||
    fail "cannot write in $root; make it writable, or copy it to a folder that is"
  cd "$root" || exit 2
  take_lock
  (($# == 1)) && is_current "$1" && exit 0 # another run did it while this one waited
  find_python
  uv_environment
  find_uv
  export UV_PROJECT_ENVIRONMENT=$venv UV_PYTHON_DOWNLOADS=never
  unset VIRTUAL_ENV UV_PYTHON

  printf '%s\n' "$root" >"$state/stamp" # now, not later: an edit made during the sync must count as newer
  drop_broken_venv
  # uv takes a package killed half-way for an installed one, so a sync that never ended condemns the .venv.
  : >"$state/syncing"
  attempt "installing the dependencies" sync "$@"
  local code=$?
  ((code > 128)) && exit "$code"
  rm -f "$state/syncing"
  ((code == 0)) || fail "could not install the dependencies (see above); run it again once that is solved"
  (($# == 1)) || printf '%s\n' "${@:2}" >>"$state/extras" # only now: one that cannot be had must not stop the next start
  [[ $1 == run ]] || cp -p "$state/stamp" "$venv/.pinfold-run"
  mv -f "$state/stamp" "$venv/.pinfold-$1"
  compile
  say "ready ($SECONDS s)"
)

take_lock() {
  if type -P flock >/dev/null; then
    exec 9>"$state/lock"
    flock -n 9 || {
      say "another run is setting up; waiting for it ..."
      flock -w 900 9 || fail "gave up waiting; is another run of this checkout stuck?"
    }
    return
  fi
  # A link is made in one step and names its owner, so the lock of a dead one can be told.
  local owner
  until ln -sn $$ "$state/lock.pid" 2>/dev/null; do
    owner=$(readlink "$state/lock.pid") || continue
    kill -0 "$owner" 2>/dev/null || rm -f "$state/lock.pid"
    sleep 0.2
  done
  trap 'rm -f "$state/lock.pid"' EXIT
}

# Sets python (as found) and interpreter (its real path, which goes away with it when the system is upgraded).
find_python() {
  local found first='none found'
  for python in python3 python3.13 python3.12 python3.11 python3.14; do
    found=$("$python" -c 'import os, sys
print("%d.%d.%d" % sys.version_info[:3], os.path.realpath(sys.executable))
sys.exit(sys.version_info < (3, 11))' 2>/dev/null) && interpreter=${found#* } && return
    [[ $python == python3 && -n $found ]] && first="python3 is ${found%% *}"
  done
  fail "needs Python 3.11 or newer ($first); fix: $(package python3.11 python3.12 python3 python@3.13)"
}

# pip's certificates and index, told to uv in its own words; what uv has been told already stays.
uv_environment() {
  [[ $python ]] || find_python
  local key value cert=$PIP_CERT index=$PIP_INDEX_URL
  while IFS='=' read -r key value; do
    value=${value#\'} value=${value%\'}
    case $key in
      *.cert) cert=${cert:-$value} ;;
      *.index-url) index=${index:-$value} ;;
    esac
  done < <("$python" -m pip config list 2>/dev/null)
  if [[ $SSL_CERT_FILE || $cert ]]; then
    export SSL_CERT_FILE=${SSL_CERT_FILE:-$cert}
  elif [[ -s /etc/ssl/certs/ca-certificates.crt || -s /etc/pki/tls/certs/ca-bundle.crt || -s /etc/ssl/cert.pem ]]; then
    export UV_SYSTEM_CERTS=${UV_SYSTEM_CERTS-1} UV_NATIVE_TLS=${UV_NATIVE_TLS-1} # the second: before uv 0.11
  fi
  [[ -z $index || $UV_DEFAULT_INDEX || $UV_INDEX_URL ]] || export UV_DEFAULT_INDEX=$index
}

# Leaves a recent uv at .uv/uv: the user's own, or one from the package index.
find_uv() {
  local own
  own=$(type -P uv) && is_recent "$own" && ln -sf "$own" "$state/uv" && return
  is_recent "$state/uv" && return
  install_uv
}

is_recent() {
  local version
  version=$("$1" --version 2>/dev/null) && [[ $version =~ ^uv\ ([0-9]+)\.([0-9]+) ]] &&
    ((BASH_REMATCH[1] > ${oldest_uv%.*} || BASH_REMATCH[2] >= ${oldest_uv#*.}))
}

install_uv() {
  local way=pip
  if "$python" -c 'import ensurepip, venv' 2>/dev/null; then
    way=venv
  elif ! "$python" -m pip --version >/dev/null 2>&1; then
    fail "$python has neither venv nor pip; fix: $(package "$python-venv" python3-pip py3-pip python@3.13)"
  fi
  rm -rf "$state/new" "$state/uv"
  attempt "installing uv" "uv_by_$way" && mv -f "$state/new/bin/uv" "$state/uv" && is_recent "$state/uv" ||
    fail "could not install uv (see above); run it again once that is solved"
  rm -rf "$state/new"
}

uv_by_venv() {
  "$python" -m venv "$state/new" && pip_install "$state/new/bin/python"
}

uv_by_pip() {
  pip_install "$python" --target "$state/new"
}

pip_install() {
  PIP_USER=0 PIP_REQUIRE_VIRTUALENV=0 PIP_ROOT_USER_ACTION=ignore \
    "$1" -m pip install -q --disable-pip-version-check "${@:2}" "uv>=$oldest_uv" >&2
}

drop_broken_venv() {
  local stamp made_in=$root
  for stamp in "$venv"/.pinfold-{run,dev}; do
    [[ -r $stamp ]] && IFS= read -r made_in <"$stamp"
  done
  [[ $made_in == "$root" && ! -e $state/syncing && -f $venv/pyvenv.cfg ]] &&
    "$venv/bin/python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null &&
    interpreter=$venv/bin/python && return
  : >"$state/syncing"
  rm -rf "$venv"
}

# Adds and updates, and never removes: ./pinfold leaves what ./check brought, both bring the extras that were added.
sync() {
  if (($# > 1)); then # whoever adds an extra reads what uv says
    sync_by_uv --color=never "$@"
  elif [[ -t 2 ]]; then
    sync_by_uv --color=never "$@" 2>&1 | one_line
    return "${PIPESTATUS[0]}"
  else
    sync_by_uv --quiet "$@"
  fi
}

one_line() { # how far uv is, in a line that is gone at the end; what else it says stays
  local line
  while IFS= read -r line; do
    case ${line#"${line%%[! ]*}"} in
      [+~-]' '*) ;;
      Using* | Creating* | Resolved* | Download* | Buil[dt]* | Prepared* | Installed* | Uninstalled* | Audited* | Bytecode*)
        printf '\r\033[Kpinfold: %.60s' "${line#"${line%%[! ]*}"}" >&2
        ;;
      *) printf '\r\033[K%s\n' "$line" >&2 ;;
    esac
  done
  printf '\r\033[K' >&2
}

sync_by_uv() {
  local groups=--no-dev quiet=$1 extras=() added= name project
  shift
  [[ $1 == run ]] || groups=--group=dev
  project=$(<"$root/pyproject.toml")
  [[ ! -r $state/extras ]] || added=$(<"$state/extras")
  for name in $added "${@:2}"; do
    # One that this version no longer has must not keep it from starting.
    [[ $project == *$'\n'"$name = ["* ]] && extras+=(--extra "$name")
  done
  if [[ -z $UV_DEFAULT_INDEX$UV_INDEX_URL ]]; then
    "$state/uv" sync $quiet --frozen --inexact $groups "${extras[@]}" --compile-bytecode --python "$interpreter" >&2
    return
  fi
  # A lock names where each file was found, and a frozen sync looks nowhere else. The hashes hold on a mirror too.
  { [[ -x $venv/bin/python ]] || "$state/uv" venv --quiet --python "$interpreter" "$venv"; } &&
    "$state/uv" export --quiet --frozen $groups "${extras[@]}" --no-emit-project -o "$state/requirements.txt" >&2 &&
    "$state/uv" pip install $quiet --python "$venv" --compile-bytecode --require-hashes -r "$state/requirements.txt" >&2 &&
    "$state/uv" pip install $quiet --python "$venv" --no-deps --editable "$root" >&2
}

package() { # the line that installs a package: apt's name for it, dnf's, apk's, brew's
  local ID ID_LIKE
  [[ $OSTYPE != darwin* ]] || { echo "brew install $4" && return; }
  source /etc/os-release 2>/dev/null
  case " $ID $ID_LIKE " in
    *" debian "* | *" ubuntu "*) echo "sudo apt install $1" ;;
    *" fedora "* | *" rhel "*) echo "sudo dnf install $2" ;;
    *" alpine "*) echo "sudo apk add $3" ;;
    *) echo "install $1 with your package manager" ;;
  esac
}

attempt() { # attempt "doing this" command ...
  local began=$SECONDS what=$1
  say "$what ..."
  "${@:2}" || return
  say "$what ... done ($((SECONDS - began)) s)"
}

say() {
  printf 'pinfold: %s\n' "$*" >&2
}

fail() {
  say "$*"
  exit 2
}
