"""Offers what a JSON file lists, and says which tool was called: python listed.py FILE. Reads the file anew each time."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def say(request: Any, result: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request, "result": result}), flush=True)


for line in sys.stdin:
    message = json.loads(line)
    request = message.get("id")
    match message.get("method"):
        case "initialize":
            info = {"name": "listed", "version": "0"}
            said = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
            say(
                request,
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": said.get("capabilities", {"tools": {"listChanged": True}}),
                    "serverInfo": info,
                },
            )
        case "tools/list":
            say(request, {"tools": json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))["tools"]})
        case "tools/call":
            say(request, {"content": [{"type": "text", "text": f"called {message['params']['name']}"}]})
        case str() if request is not None:
            error = {"code": -32601, "message": "Method not found"}
            print(json.dumps({"jsonrpc": "2.0", "id": request, "error": error}), flush=True)
        case _:
            pass
