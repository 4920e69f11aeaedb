"""A server that breaks every rule there is, without the SDK: python rude.py [HOW IT STARTS]."""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

HOW = sys.argv[1] if len(sys.argv) > 1 else ""
OUT = sys.stdout.buffer
INTEGER = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
EVIL = {"type": "object", "properties": {"s": {"type": "string", "pattern": "^(a+)+$"}}}
OUTPUTS = {"lies": INTEGER, "breaks_promise": INTEGER, "keeps_promise": INTEGER, "evil_pattern": EVIL}
TOOLS = (
    *("fine", "twice", "unknown_id", "reverse", "garbage", "bytes", "flood", "endless_line", "flood_of_garbage"),
    *("hang", "die", "no_answer", "wrong_answer", "questions", "huge", "error", "closes", "half", "changes"),
    *OUTPUTS,
)
waiting: list[Any] = []


def say(message: Any) -> None:
    OUT.write(json.dumps(message).encode() + b"\n")
    OUT.flush()


def answer(request: Any, result: Any) -> None:
    say({"jsonrpc": "2.0", "id": request, "result": result})


def text(words: str) -> Any:
    return {"content": [{"type": "text", "text": words}]}


def listed() -> list[Any]:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    tools: list[Any] = [
        {
            "name": name,
            "description": name,
            "inputSchema": schema,
            **({"outputSchema": OUTPUTS[name]} if name in OUTPUTS else {}),
        }
        for name in TOOLS
    ]
    match HOW:
        case "same_names":
            tools += [{"name": "fine", "description": "another", "inputSchema": schema}]
        case "odd_names":
            tools += [
                {"name": "f\N{CYRILLIC SMALL LETTER I}ne", "inputSchema": schema},
                {"name": "a\x1b[2Jb", "inputSchema": schema},
            ]
        case "many":
            tools += [{"name": f"t{n}", "inputSchema": schema} for n in range(2_000)]
        case "no_schema_at_all":
            tools += [{"name": "bad_schema", "inputSchema": {"type": "nonsense", "required": 7}}]
        case _:
            pass
    return tools


def call(request: Any, name: str) -> None:  # noqa: C901 - one case for each rule
    match name:
        case "fine":
            answer(request, text("fine"))
        case "twice":
            answer(request, text("first"))
            answer(request, text("second"))
        case "unknown_id":
            answer(10**9, text("not yours"))
            answer("x" * 50, text("not yours"))
            answer(request, text("yours"))
        case "reverse":
            waiting.append(request)
            if len(waiting) == 3:
                for number, one in enumerate(reversed(waiting)):
                    answer(one, text(f"{len(waiting) - number}"))
                waiting.clear()
        case "garbage":
            OUT.write(b"Loading model...\n\n{'not': json}\n[1, 2]\nnull\n\x1b[2J\n")
            answer(request, text("after garbage"))
        case "bytes":
            OUT.write(b"\xff\xfe\x00\x80 not utf-8\n")
            answer(request, text("after bytes"))
        case "flood":
            line = json.dumps(
                {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}}
            )
            while True:
                OUT.write(line.encode() + b"\n")
        case "flood_of_garbage":
            while True:
                OUT.write(b"\n" * 4096)
        case "endless_line":
            while True:
                OUT.write(b"x" * 65536)
        case "huge":
            answer(request, text("y" * 3_000_000))
        case "hang":
            pass
        case "closes":
            os.close(1)
            time.sleep(60)
        case "die":
            print("out of cheese", file=sys.stderr, flush=True)
            os._exit(3)
        case "no_answer":
            say({"jsonrpc": "2.0", "id": request, "result": 5})
        case "half":
            OUT.write(
                b'{"jsonrpc": "2.0", "id": %d, "result": {"content": [{"type": "text", "text": "\\ud800"}]}}\n'
                % request
            )
            OUT.flush()
        case "wrong_answer":
            answer(request, {"content": "nope"})
        case "error":
            say({"jsonrpc": "2.0", "id": request, "error": {"code": -32000, "message": "no\nsuch \x1b[31mthing"}})
        case "lies":
            answer(request, {**text("n"), "structuredContent": {"n": "seven"}})
        case "breaks_promise":
            answer(request, text("n"))
        case "keeps_promise":
            answer(request, {**text("n"), "structuredContent": {"n": 7}})
        case "evil_pattern":
            answer(request, {**text("n"), "structuredContent": {"s": "a" * 40 + "b"}})
        case "questions":
            form: dict[str, Any] = {"message": "?", "requestedSchema": {"type": "object", "properties": {}}}
            for n in range(100):
                say({"jsonrpc": "2.0", "id": f"q{n}", "method": "elicitation/create", "params": form})
            waiting.append(request)
        case "changes":
            for _ in range(500):
                say({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"})
            answer(request, text("told"))
        case _:
            say({"jsonrpc": "2.0", "id": request, "error": {"code": -32602, "message": "unknown tool"}})


def main() -> None:  # noqa: C901
    answered: list[str] = []
    if HOW == "dies":
        print("no such key", file=sys.stderr)
        sys.exit(4)
    if HOW == "noisy":
        OUT.write(b"Welcome to the noisy server!\n")
    for line in sys.stdin:
        message = json.loads(line)
        request, params = message.get("id"), message.get("params", {})
        match message.get("method"):
            case _ if HOW == "mute":
                pass
            case "initialize" if HOW == "liar":
                answer(
                    request,
                    {"protocolVersion": "1999-01-01", "capabilities": {}, "serverInfo": {"name": "x", "version": "0"}},
                )
            case "initialize" if HOW == "nonsense":
                answer(request, {"capabilities": "all of them"})
            case "initialize":
                info = {"name": "rude", "version": "0"}
                can = {"tools": {"listChanged": True}}
                answer(request, {"protocolVersion": "2025-06-18", "capabilities": can, "serverInfo": info})
            case "tools/list" if HOW == "endless_pages":
                answer(request, {"tools": [], "nextCursor": "more"})
            case "tools/list":
                answer(request, {"tools": listed()})
            case "tools/call":
                call(request, params["name"])
            case None if str(request).startswith("q"):
                answered.append("declined" if "result" in message else "refused")
                if (len(answered) == 100 or answered.count("refused") == 92) and waiting:
                    answer(waiting.pop(), text(f"{answered.count('refused')} refused"))
            case str() if request is not None:
                say({"jsonrpc": "2.0", "id": request, "error": {"code": -32601, "message": "Method not found"}})
            case _:
                pass


main()
