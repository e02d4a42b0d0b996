#!/bin/sh
# Lets a scripted agent fix a failing test, over two deaths of its worker. See README.md.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
mainspring=${MAINSPRING:-mainspring}
port=${PORT:-7474}
work=$(mktemp -d)
server=
trap 'test -z "$server" || kill -9 "$server" 2>/dev/null || true; rm -rf "$work"' EXIT

cp -R "$here/project" "$work/project"
MAINSPRING_SERVER="http://127.0.0.1:$port"
export MAINSPRING_SERVER
export MAINSPRING_LISTEN="127.0.0.1:$port" MAINSPRING_DATA_DIR="$work/data"
export MAINSPRING_LLM_PROVIDER=demo MAINSPRING_LEASE_TTL=2s
export MAINSPRING_TOOLS_SHELL=local MAINSPRING_TOOLS_WORKSPACE_SHARED=true
export MAINSPRING_TOOLS_WORKSPACE="$work/project"

start() {
    "$mainspring" dev >>"$work/log" 2>&1 &
    server=$!
    tries=0
    until curl -sf "$MAINSPRING_SERVER/readyz" >/dev/null; do
        tries=$((tries + 1))
        if [ "$tries" -gt 300 ] || ! kill -0 "$server" 2>/dev/null; then
            echo "the server does not start:" >&2
            cat "$work/log" >&2
            exit 1
        fi
        sleep 0.1
    done
}

# Signal 9, and the next server takes over.
die() {
    echo "-- kill -9 $1"
    kill -9 "$server"
    wait "$server" 2>/dev/null || true
    start
}

# Waits until the send $send is as the pattern $1 says.
until_is() {
    tries=0
    until curl -sf "$MAINSPRING_SERVER/v1/sends/$send" | grep -Eq "$1"; do
        tries=$((tries + 1))
        if [ "$tries" -gt 600 ]; then
            echo "the send is not $1:" >&2
            curl -s "$MAINSPRING_SERVER/v1/sends/$send" >&2
            exit 1
        fi
        sleep 0.1
    done
}

start
echo "-- before"
(cd "$work/project" && sh run-tests.sh) || true
send=$(curl -sf "$MAINSPRING_SERVER/v1/sends" -H 'Content-Type: application/json' \
    -d @"$here/script.json" | grep -Eo '"id": *"snd_[0-9a-f]+"' | grep -Eo 'snd_[0-9a-f]+')
until_is '"waiting_on": *"human"'
die "while the person thinks"
"$mainspring" sends answer "$send"
"$mainspring" sends answer "$send" "yes"
# Asked, delegated, and about to read again.
until_is '"rounds": *3'
die "while the agent works"
until_is '"status": *"(completed|failed|cancelled)"'
until_is '"status": *"completed"'
echo "-- after"
cat "$work/project/CHANGES.md"
(cd "$work/project" && sh run-tests.sh)
"$mainspring" audit
