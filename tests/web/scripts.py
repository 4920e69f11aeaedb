"""What the model of the tests replies, one file for each story."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PLOT = """
class Plot:
    def _repr_svg_(self):
        bars = "".join(f'<rect x="0" y="{20 * at}" width="{40 * at + 40}" height="16" fill="#2c6b53"/>' for at in range(4))
        return f'<svg xmlns="http://www.w3.org/2000/svg" width="240" height="90">{bars}</svg>'

from pathlib import Path
_ = Path("summary.md").write_text("# Revenue\\n\\n- Online: 27,386\\n")
Plot()
"""
TABLE = """
import pandas as pd
sales = pd.read_csv("sales.csv")
sales
"""
WAITS = """
import time
from pathlib import Path
print("the first line")
while not Path("go.txt").exists():
    time.sleep(0.05)
print("the last line")
"""


def cell(code: str, text: str = "") -> dict[str, Any]:
    return {"text": text, "calls": [{"tool": "python", "args": {"code": code.strip()}}]}


QUESTION = {"calls": [{"tool": "ask_user", "args": {"question": "For which year?", "options": ["2024", "2025"]}}]}
ASKS = {"calls": [{"tool": "write_file", "args": {"path": "AGENTS.md", "content": "be kind\n"}}]}
SCRIPTS: dict[str, list[dict[str, Any]]] = {
    "newcomer": [
        cell(TABLE, "I read the table first."),
        cell(PLOT),
        {"text": "**Online** leads.\n\n| region | revenue |\n|---|---|\n| Online | 27,386 |\n"},
        ASKS,
        QUESTION,
        {"text": "The note is written.", "expect": "2025"},
        cell("best = 'Online'\nbest"),
        {"text": "The branch went its own way."},
        {"reasoning": "First I look at the regions.", "delay_s": 600},
    ],
    "waits": [cell(WAITS, "I wait."), {"text": "It is done."}] * 2,
    "keyboard": [cell("x = 1\nx"), {"text": "x is 1."}, ASKS, {"text": "Written."}, cell("y = 2"), {"text": "y is 2."}],
}


def write_scripts(folder: Path) -> None:
    for name, replies in SCRIPTS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies), encoding="utf-8")
