"""Measures of Pinfold that anyone can repeat: `pinfold bench NAME`."""

from pinfold.app.bench.report import Report, Rule, as_json, as_text
from pinfold.app.bench.running import BENCHES, tokens_live, tokens_of_bfcl, tokens_of_tasks
from pinfold.app.bench.sets import SETS, SetName

__all__ = [
    "BENCHES",
    "SETS",
    "Report",
    "Rule",
    "SetName",
    "as_json",
    "as_text",
    "tokens_live",
    "tokens_of_bfcl",
    "tokens_of_tasks",
]
