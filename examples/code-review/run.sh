#!/bin/sh
# A review of main.py, on a copy in work/. usage: ./run.sh [MODEL]
cd "$(dirname "$0")" && mkdir -p work && cp main.py work/ || exit
${PINFOLD:-../../pinfold} run --workspace work --model "${1:-scripted:script.jsonl}" \
    "Analyze main.py, find bugs, fix them, and write what you did to review.md." || exit
test -s work/review.md
