#!/bin/sh
# Prints the number of lines and words of a file, then its ten most frequent words.
set -eu
[ $# -eq 1 ] || { echo "usage: count.sh FILE" >&2; exit 2; }
words() { tr '[:upper:]' '[:lower:]' < "$1" | tr -cs "[:alnum:]'" '\n' | sed '/^$/d'; }
echo "lines $(wc -l < "$1" | tr -d ' '), words $(words "$1" | wc -l | tr -d ' ')"
words "$1" | sort | uniq -c | sort -k1,1nr -k2 | head -n 10
