# Steps of a check. To be sourced by a bash script with `set -euo pipefail`:
#
#   step NAME                      begins a step; the commands that follow belong to it
#   background NAME COMMAND...     runs a step beside the others, with its output in a file
#   finish NAME...                 waits for background steps, prints their output, and fails if one failed
#   finish_all                     waits for all of them
#   print_times                    prints how long each step took
#
# Every `step` also prints the output of the background steps that have ended, so a failure is reported soon.
# Background steps have process groups of their own, which are killed if the script ends before them.

step_logs=$(mktemp -d)
step_times=()
step_name=
declare -A step_groups step_starts
trap stop_steps EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

step() { # name
    end_step
    finish_ended
    step_name=$1 step_began=$SECONDS
    printf '\n== %s (%ss)\n' "$1" "$SECONDS"
}

end_step() {
    [ -z "$step_name" ] || step_times+=("$((SECONDS - step_began))s $step_name")
    step_name=
}

background() { # name, command...
    local name=$1
    shift
    step_starts[$name]=$SECONDS
    set -m
    (
        set +m
        trap 'echo "$SECONDS" >"$step_logs/$name.ended"' EXIT
        trap - INT TERM
        "$@"
    ) </dev/null >"$step_logs/$name" 2>&1 &
    step_groups[$name]=$!
    set +m
}

finish() { # name...
    local name status ended
    end_step
    for name in "$@"; do
        [ -n "${step_groups[$name]-}" ] || continue
        status=0
        wait "${step_groups[$name]}" || status=$?
        unset "step_groups[$name]"
        # A step that was killed has not noted when.
        ended=$(cat "$step_logs/$name.ended" 2>/dev/null || echo "$SECONDS")
        step_times+=("$((ended - step_starts[$name]))s $name (in the background)")
        printf '\n== %s (in the background, %ss to %ss)\n' "$name" "${step_starts[$name]}" "$ended"
        cat "$step_logs/$name"
        if [ "$status" != 0 ]; then
            printf '\nFAILED: %s\n' "$name" >&2
            exit "$status"
        fi
    done
}

finish_ended() {
    local name
    for name in "${!step_groups[@]}"; do
        kill -0 "${step_groups[$name]}" 2>/dev/null || finish "$name"
    done
}

finish_all() {
    finish "${!step_groups[@]}"
}

print_times() {
    printf '\nTime of each step:\n'
    printf '  %s\n' "${step_times[@]}"
}

stop_steps() {
    local status=$? name
    [ "$status" = 0 ] || [ -z "$step_name" ] || printf '\nFAILED: %s\n' "$step_name" >&2
    for name in "${!step_groups[@]}"; do
        kill -TERM -- "-${step_groups[$name]}" 2>/dev/null || true
    done
    # What they leave behind would disturb the next run.
    for name in "${!step_groups[@]}"; do
        wait "${step_groups[$name]}" 2>/dev/null || true
    done
    rm -rf "$step_logs"
}
