"""One task for a smolagents CodeAgent, in the working folder. Runs in the baseline's environment.

As its documentation recommends for work on local files: every import allowed, `open` given to the local executor;
all else as it comes, or as the last argument says, in JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

smolagents: Any = import_module("smolagents")


def main() -> None:
    url, name, prompt, result, *settings = sys.argv[1:]
    model = smolagents.OpenAIServerModel(model_id=name, api_base=url, api_key="none", temperature=0)
    agent = smolagents.CodeAgent(
        tools=[],
        model=model,
        add_base_tools=False,
        additional_authorized_imports=["*"],
        executor_kwargs={"additional_functions": {"open": open}},
        **(json.loads(settings[0]) if settings else {}),
    )
    done = agent.run(prompt, return_full_result=True)
    steps = [step for step in agent.memory.steps if isinstance(step, smolagents.ActionStep)]
    # The step that delivers the answer is how this agent says anything at all.
    acted = [step for step in steps if step.code_action and not step.is_final_answer]
    told = {"answer": str(done.output), "state": done.state, "steps": len(steps), "actions": len(acted)}
    Path(result).write_text(json.dumps(told), encoding="utf-8")


main()
