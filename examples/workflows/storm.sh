#!/bin/sh
# Runs a workflow while one of its processes is killed every two seconds. See README.md.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mainspring=${MAINSPRING:-mainspring}
spec=${SPEC:-$here/research.json}
every=${EVERY:-2}
first_port=${PORT:-7481}
second_port=${SECOND_PORT:-$((first_port + 1))}
: "${MAINSPRING_DATABASE_URL:?names no Postgres, like postgres://user@localhost/mainspring}"
: "${MAINSPRING_REDIS_URL:?names no Redis, like redis://localhost}"
# Without a model of one's own, the one that ships answers slowly enough to be killed.
if [ -z "${MAINSPRING_LLM_PROVIDER:-}" ]; then
    MAINSPRING_LLM_PROVIDER=demo
    INPUT=${INPUT:-'!stream 40x100ms the history of tea'}
fi
MAINSPRING_LEASE_TTL=${MAINSPRING_LEASE_TTL:-2s}
MAINSPRING_SERVER="http://127.0.0.1:$first_port"
export MAINSPRING_DATABASE_URL MAINSPRING_REDIS_URL MAINSPRING_LLM_PROVIDER MAINSPRING_LEASE_TTL
export MAINSPRING_SERVER

work=$(mktemp -d)
killer=
finish() {
    test -z "$killer" || kill "$killer" 2>/dev/null || true
    for name in scheduler-1 scheduler-2 worker-1 worker-2 worker-3; do
        test ! -f "$work/$name" || kill -9 "$(cat "$work/$name")" 2>/dev/null || true
    done
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 130' INT TERM

# Starts the process $1.
start() {
    case $1 in
    scheduler-1) "$mainspring" scheduler --name "$1" --listen "127.0.0.1:$first_port" ;;
    scheduler-2) "$mainspring" scheduler --name "$1" --listen "127.0.0.1:$second_port" ;;
    *) "$mainspring" worker --name "$1" ;;
    esac >>"$work/$1.log" 2>&1 &
    echo $! >"$work/$1"
}

# Waits until the scheduler on port $1 answers.
ready() {
    tries=0
    until "$mainspring" --server "http://127.0.0.1:$1" workers >/dev/null 2>&1; do
        tries=$((tries + 1))
        if [ "$tries" -gt 60 ]; then
            echo "the scheduler on port $1 does not start:" >&2
            cat "$work"/*.log >&2
            exit 1
        fi
        sleep 0.2
    done
}

# The ids of the live workers of this name: each life has its own.
lives() {
    "$mainspring" workers -o table 2>/dev/null | awk -v name="$1" '$1 == name { print $NF }'
}

# Waits until the process $1 serves again, or works with another id than those in $2: on a busy machine it
# takes longer than the pause, and sends must not lose worker after worker because none is left.
back() {
    case $1 in
    scheduler-1) ready "$first_port" ;;
    scheduler-2) ready "$second_port" ;;
    *)
        tries=0
        until lives "$1" | grep -qvxF "$2"; do
            tries=$((tries + 1))
            if [ "$tries" -gt 300 ]; then
                echo "$1 does not come back:" >&2
                cat "$work/$1.log" >&2
                exit 1
            fi
            sleep 0.1
        done
        ;;
    esac
}

# Kills one process after the other with signal 9, and starts it again.
storm() {
    while :; do
        for name in worker-1 scheduler-1 worker-2 worker-3 scheduler-2; do
            sleep "$every"
            before=$(lives "$name")
            # Said and counted at once: this may be the moment in which the storm is called off.
            echo "-- kill -9 $name" | tee -a "$work/killed"
            kill -9 "$(cat "$work/$name")"
            start "$name"
            back "$name" "${before:-none}"
        done
    done
}

start scheduler-1
ready "$first_port"
for name in scheduler-2 worker-1 worker-2 worker-3; do
    start "$name"
done
ready "$second_port"

if [ -n "${INPUT:-}" ]; then
    run=$("$mainspring" run "$spec" --detach --input "$INPUT")
else
    run=$("$mainspring" run "$spec" --detach)
fi
echo "-- $run"
storm &
killer=$!
# Whoever asks a server that was just killed asks again.
status=
until [ "$status" = completed ] || [ "$status" = failed ] || [ "$status" = cancelled ]; do
    status=$("$mainspring" runs show "$run" --wait 5s -o json 2>/dev/null |
        sed -n 's/^  "status": "\([a-z]*\)".*/\1/p') || true
done
kill "$killer"
wait "$killer" 2>/dev/null || true
killer=
ready "$first_port"

echo "-- the run: $status"
"$mainspring" runs nodes "$run"
echo "-- $(wc -l <"$work/killed" | tr -d ' ') deaths"
echo "-- the audit"
"$mainspring" audit
test "$status" = completed
