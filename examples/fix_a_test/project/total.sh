#!/bin/sh
# Adds up the numbers of a file, one in each line.
total=0
while read -r number; do
    total=$((total + number))
done < "$1"
echo "$total"
