#!/bin/sh
# Says which tests fail; exits with 1 if any does.
failed=0
check() {
    got=$(sh total.sh cases/"$1")
    if [ "$got" = "$2" ]; then
        echo "ok: $1"
    else
        echo "FAILED: $1: $got, not $2"
        failed=1
    fi
}
check three-lines 6
check nothing 0
check no-last-newline 6
exit $failed
