# Installs the Postgres versions that tests run with, and PgBouncer. To be sourced, after apt.sh.
#
# install_postgres DIR: exports REQUEUE_POSTGRES_15 and REQUEUE_POSTGRES_18, the directories with initdb and
# postgres. Version 15, psql and PgBouncer are Debian packages; version 18 comes from npm, into DIR. One run
# installs, others wait for it.
#
# find_postgres DIR: sets `postgres` to the directory with the programs of the newest version that tests run with, or that Debian
# has. Installs both versions if there is none.
POSTGRES_18_VERSION=18.4.0-beta.17

install_postgres() { # directory
    local dir=$1 debian=/usr/lib/postgresql/15/bin package arch sudo=""
    [ "$(id -u)" = 0 ] || sudo=sudo
    case "$(uname -m)" in
        x86_64) arch=x64 ;;
        aarch64) arch=arm64 ;;
        *) echo "no Postgres 18 for $(uname -m)" >&2 && return 1 ;;
    esac
    package=@embedded-postgres/linux-$arch
    mkdir -p "$dir"
    exec {install_lock}>"$dir/lock"
    flock "$install_lock"
    if ! [ -x $debian/postgres ] || ! [ -x $debian/psql ] || ! [ -x /usr/sbin/pgbouncer ]; then
        install_postgres_packages >"$dir/apt.log" 2>&1 || { cat "$dir/apt.log" >&2 && return 1; }
    fi
    # What was installed is remembered by its version.
    if [ "$(cat "$dir/installed" 2>/dev/null)" != "$package@$POSTGRES_18_VERSION" ]; then
        npm install --silent --no-audit --no-fund --prefix "$dir" "$package@$POSTGRES_18_VERSION" >&2
        # npm keeps neither symbolic links nor permissions, and may not run the script that creates the links.
        (cd "$dir/node_modules/$package" && node scripts/hydrate-symlinks.js && chmod +x native/bin/*)
        "$dir/node_modules/$package/native/bin/postgres" --version >&2
        printf '%s\n' "$package@$POSTGRES_18_VERSION" >"$dir/installed"
    fi
    flock -u "$install_lock"
    exec {install_lock}>&-
    export REQUEUE_POSTGRES_15=$debian
    export REQUEUE_POSTGRES_18=$dir/node_modules/$package/native/bin
}

# Installs the Debian packages. Tests start servers of their own, so the packages shall not create one.
install_postgres_packages() {
    local config=/etc/postgresql-common/createcluster.d/requeue.conf status=0
    $sudo mkdir -p "$(dirname $config)" && echo "create_main_cluster = false" | $sudo tee $config || return
    apt_install postgresql-15 pgbouncer || status=$?
    $sudo rm -f $config
    return $status
}

newest_postgres() {
    local bin
    for bin in "${REQUEUE_POSTGRES_18:-}" "${REQUEUE_POSTGRES_15:-}" \
        $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -rV); do
        if [ -x "$bin/initdb" ] && [ -x "$bin/postgres" ]; then
            postgres=$bin
            return
        fi
    done
    return 1
}

find_postgres() { # directory
    newest_postgres || { install_postgres "$1" && newest_postgres; }
}
