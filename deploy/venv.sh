# Shared by quickstart and selftest: makes a virtual environment and installs the project into it.
# Sourced, not run. Every failure ends in one sentence that says what to do.

fail() {
    printf '%s\n' "$*" >&2
    exit 1
}

# debian_install WHAT_FOR PACKAGE...: install packages of Debian where that can be done without asking: as root.
debian_install() {
    [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null || return 1
    what_for=$1
    shift
    echo "Installing $* for $what_for ..." >&2
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$@"; } \
        >/dev/null 2>&1
}

# find_python: the newest Python from 3.11 on, in $PYTHON.
find_python() {
    for PYTHON in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$PYTHON" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            return
        fi
    done
    fail "vm-usage needs Python 3.11 or newer: run apt-get install python3 python3-venv as root (or set PYTHON to one)."
}

# install_project VENV EXTRAS FOLDER: install FOLDER with EXTRAS into VENV; nothing is done where it is up to date.
install_project() {
    find_python
    stamp="$1/.installed$(printf '%s' "$2" | tr -dc '[:lower:]')"
    if [ -e "$stamp" ] && [ -z "$(find "$3/pyproject.toml" -newer "$stamp")" ]; then
        return
    fi
    if ! "$1/bin/python" -c '' 2>/dev/null; then
        rm -rf "$1"
        # Debian's python3 comes without what makes virtual environments.
        "$PYTHON" -c 'import ensurepip' 2>/dev/null || debian_install "virtual environments" python3-venv || true
        if ! said=$("$PYTHON" -m venv "$1" 2>&1); then
            printf '%s\n' "$said" >&2
            rm -rf "$1"
            fail "The virtual environment could not be made: run apt-get install python3-venv as root, then this again."
        fi
    fi
    echo "Installing vm-usage$2 into $1 ..." >&2
    log="$1/install.log"
    if ! "$1/bin/python" -m pip install --disable-pip-version-check -q -e "$3$2" >"$log" 2>&1; then
        tail -n 15 "$log" >&2
        if grep -qiE 'Python\.h|error: command .*(gcc|cc)' "$log"; then
            fail "A dependency had no wheel for this Python and could not be compiled: run apt-get install python3-dev gcc as root, then this again."
        elif grep -qiE 'ConnectionError|Temporary failure|Network is unreachable|NewConnectionError|No matching distribution|timed out' "$log"; then
            fail "The packages could not be fetched: check the network, proxy (HTTPS_PROXY) or package index (PIP_INDEX_URL) and run this again."
        fi
        fail "The installation failed; the whole log is in $log."
    fi
    touch "$stamp"
}
