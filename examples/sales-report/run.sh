#!/bin/sh
# A report on sales.csv, written to work/. usage: ./run.sh [MODEL]
cd "$(dirname "$0")" && mkdir -p work && cp sales.csv work/ && rm -f work/report.md || exit
${PINFOLD:-../../pinfold} run --workspace work --model "${1:-scripted:script.jsonl}" \
    "Process sales.csv and create a summary report: report.md, with a chart of sales by region in regions.png." || exit
test -s work/report.md
