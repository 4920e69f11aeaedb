#!/bin/sh
# Quicksort, tested and drawn, in work/. usage: ./run.sh [MODEL]
cd "$(dirname "$0")" && mkdir -p work && rm -f work/quicksort.* || exit
${PINFOLD:-../../pinfold} run --workspace work --model "${1:-scripted:script.jsonl}" \
    "Implement quicksort in quicksort.py, test it, count its comparisons, and draw them in quicksort.png." || exit
test -s work/quicksort.png
