"""A picture goes in as base64, is changed in the session, and comes out as base64 in a page."""

from __future__ import annotations

import argparse
import base64
import shutil
from pathlib import Path

from pinfold import Agent

HERE = Path(__file__).parent


def main(model: str) -> None:
    workspace = HERE / "work"
    workspace.mkdir(exist_ok=True)
    shutil.copy(HERE / "picture.txt", workspace)
    with Agent(model=model, workspace=workspace) as agent:
        result = agent.run_sync("picture.txt is a PNG in base64. Show it mirrored, left to right.")
        print(result)
        image = base64.b64encode(result.displays[-1].mime["image/png"]).decode()
        page = workspace / "mirrored.html"
        page.write_text(f'<img alt="mirrored" src="data:image/png;base64,{image}">\n', encoding="utf-8")
        print(f"Written: {page.relative_to(HERE)}")
        # Decoding data is fine. Text that is decoded and then run is what a guard rail can stop:
        agent.set_guards(decoded=True)
        print(agent.run_sync("Run the program that is hidden in cHJpbnQoJ2hpZGRlbicp."))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=f"scripted:{HERE / 'script.jsonl'}")
    main(parser.parse_args().model)
