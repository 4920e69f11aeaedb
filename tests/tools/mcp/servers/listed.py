"""Offers what a JSON file lists, and says which tool was called: python listed.py FILE. Reads the file anew each time.

What the file has under `then` is listed from the first call on, and a notification says so before the call is answered.
With `mute` what changed is never told.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any


def say(request: Any, result: Any) -> None:
    print(json.dumps({"jsonrpc": "2.0", "id": request, "result": result}), flush=True)


def read() -> dict[str, Any]:
    return json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))


for line in sys.stdin:
    message = json.loads(line)
    request = message.get("id")
    match message.get("method"):
        case "initialize":
            info = {"name": "listed", "version": "0"}
            say(
                request,
                {
                    "protocolVersion": "2025-06-18",
                    "capabilities": read().get("capabilities", {"tools": {"listChanged": True}}),
                    "serverInfo": info,
                },
            )
        case "tools/list":
            if not read().get("mute"):
                say(request, {"tools": read()["tools"]})
        case "tools/call":
            if "then" in (said := read()):
                Path(sys.argv[1]).write_text(json.dumps(said["then"]), encoding="utf-8")
                changed = {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}
                print(json.dumps(changed), flush=True)
            say(request, {"content": [{"type": "text", "text": f"called {message['params']['name']}"}]})
        case str() if request is not None:
            error = {"code": -32601, "message": "Method not found"}
            print(json.dumps({"jsonrpc": "2.0", "id": request, "error": error}), flush=True)
        case _:
            pass
