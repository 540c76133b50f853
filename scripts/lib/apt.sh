# Installs Debian packages. To be sourced.
#
#   apt_install PACKAGE...    installs them, as root or with sudo
#
# If another process holds a lock of the package manager, it waits up to five minutes for it: unattended upgrades hold
# it for minutes after a machine has started.
APT_PATIENCE=300

apt_install() { # package...
    local sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    apt_update "$sudo" &&
        $sudo apt-get -o DPkg::Lock::Timeout=$APT_PATIENCE install -qy --no-install-recommends "$@"
}

# `DPkg::Lock::Timeout` does not apply to the lock of the package lists.
apt_update() { # sudo
    local output status began=$SECONDS
    while :; do
        status=0
        output=$(LC_ALL=C $1 apt-get update -q 2>&1) || status=$?
        if [ $status = 0 ] || ! grep -q 'Could not get lock' <<<"$output" ||
            [ $((SECONDS - began)) -ge $APT_PATIENCE ]; then
            break
        fi
        sleep 1
    done
    printf '%s\n' "$output"
    return $status
}
