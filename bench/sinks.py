"""Sends hostile outputs and secrets through every sink of the command line and looks for what came out.

    ./.venv/bin/python bench/sinks.py [--count N] [--only SINK ...]
    ./.venv/bin/python bench/sinks.py --control     the same against a build that is weakened on purpose

500 outputs that steer a terminal, turn the reading order round or hide words; 80 shapes of secrets, and keys behind escapes; harmless text, which
must come out as it is. Exits 0 only if every sink was examined with all of them and none let anything through.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from bench.sink_suite.hostile import HARMLESS, RAW, hostile
from bench.sink_suite.secrets import disguised, planted
from bench.sink_suite.sinks import SINKS, sent
from bench.sink_suite.terminal import Scene

JSON = ("configuration",)
"""Steers nothing even without us."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="hostile outputs")
    parser.add_argument("--only", nargs="*", choices=SINKS, default=list(SINKS))
    parser.add_argument("--control", action="store_true", help="expect everything to come through")
    given = parser.parse_args()
    outputs, secrets = hostile(given.count), (*planted(), *disguised())
    if given.control:  # half a letter would end a weakened command before anything was shown
        outputs = tuple(text for text in outputs if not any("\ud800" <= letter <= "\udfff" for letter in text))
    held = True
    print(f"{'sink':<14} {'hostile':>8} {'raw':>7} {'secrets':>8} {'seen':>5} {'harmless':>9}   time")
    for name in given.only:
        began = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="sinks-") as folder:
            scenes = [Scene(folder=Path(folder) / str(number), weak=given.control) for number in range(3)]
            for scene in scenes:
                scene.folder.mkdir()
            steered = sent(SINKS[name], scenes[0], outputs)
            shown = sent(SINKS[name], scenes[1], [one.line for one in secrets])
            harmless = sent(SINKS[name], scenes[2], HARMLESS)
        raw = len(RAW.findall(steered.text))
        seen = sum(any(part in shown.text for part in one.secret.split("\n")) for one in secrets)
        same = sum(text.split("\n")[0] in harmless.text for text in HARMLESS)
        row = f"{steered.examined:>8} {raw:>7} {shown.examined:>8} {seen:>5} {same:>6}/{len(HARMLESS)}"
        print(f"{name:<14} {row}   {time.monotonic() - began:.0f} s", flush=True)
        if given.control:
            held &= seen > 0 and (raw > 0 or name in JSON)
        else:
            held &= steered.examined == len(outputs) and shown.examined == len(secrets) and not (raw or seen)
    words = "everything came through, as it should here" if given.control else "held"
    print(words if held else "BROKEN")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
