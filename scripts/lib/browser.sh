# Installs what programs of tests/browser need. To be sourced, after apt.sh.
#
# install_browser DIR: sets BROWSER_PYTHON and exports AXE_CORE. One run installs, others wait for it.
AXE_CORE_VERSION=4.14.0

install_browser() { # directory
    local dir=$1 wanted
    mkdir -p "$dir"
    exec {install_lock}>"$dir/lock"
    flock "$install_lock"
    if ! [ -x /usr/bin/chromium ] || ! dpkg -s fonts-dejavu-core >/dev/null 2>&1; then
        apt_install chromium fonts-dejavu-core >"$dir/apt.log" 2>&1 ||
            { cat "$dir/apt.log" >&2 && return 1; }
    fi
    # What was installed is remembered by the list of versions.
    wanted="$(cat tests/browser/requirements.txt) axe-core==$AXE_CORE_VERSION"
    if [ "$(cat "$dir/installed" 2>/dev/null)" != "$wanted" ]; then
        python3 -m venv "$dir/venv"
        "$dir/venv/bin/pip" install -q --disable-pip-version-check -r tests/browser/requirements.txt
        npm install --silent --no-audit --no-fund --prefix "$dir" "axe-core@$AXE_CORE_VERSION"
        printf '%s\n' "$wanted" >"$dir/installed"
    fi
    flock -u "$install_lock"
    exec {install_lock}>&-
    BROWSER_PYTHON=$dir/venv/bin/python
    # No caches between the sources.
    export PYTHONDONTWRITEBYTECODE=1
    export AXE_CORE=$dir/node_modules/axe-core/axe.min.js
}
