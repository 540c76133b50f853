# A requeue server for a check. To be sourced by a bash script with `set -euo pipefail`:
#
#   start_server PROGRAM FOLDER [ARGUMENT...]    starts `requeue serve` on a free port; sets server_url, server_pid
#   stop_server                                  ends it as an operator does, and fails if it does not end well
#
# The server keeps its jobs in FOLDER/data and writes its log to FOLDER/log. The caller stops it on exit.

server_pid=
start_server() { # program, folder, more arguments of `serve`
    local program=$1 folder=$2
    shift 2
    "$program" --json --data "$folder/data" serve --listen 127.0.0.1:0 "$@" >"$folder/address" 2>"$folder/log" &
    server_pid=$!
    for _ in $(seq 300); do
        server_url=$(sed -n 's/.*"listening": *"\([^"]*\)".*/\1/p' "$folder/address")
        [ -z "$server_url" ] || return 0
        kill -0 "$server_pid" 2>/dev/null || break
        sleep 0.1
    done
    echo "the server did not start:" >&2
    cat "$folder/log" >&2
    return 1
}

stop_server() {
    local pid=$server_pid
    server_pid=
    [ -n "$pid" ] || return 0
    kill "$pid"
    wait "$pid"
}
