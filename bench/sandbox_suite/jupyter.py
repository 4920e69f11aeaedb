"""jupyter_client + ipykernel as its users drive it: a manager, its connection file, ready, execute, all messages."""

from __future__ import annotations

import subprocess
import time
from importlib import import_module
from typing import Any

from bench.sandbox_suite.contenders import FOREVER, Answer

READY_S = 60.0


class Jupyter:
    name = "ipykernel"

    def __init__(self) -> None:
        self._managers = import_module("jupyter_client.manager")

    async def open(self) -> Kernel:
        manager = self._managers.AsyncKernelManager(kernel_name="python3")
        await manager.start_kernel(stderr=subprocess.DEVNULL)  # it warns of TCP each time
        client = manager.client()
        client.start_channels()
        await client.wait_for_ready(timeout=READY_S)
        return Kernel(manager, client)


class Kernel:
    def __init__(self, manager: Any, client: Any) -> None:
        self._manager = manager
        self._client = client

    async def run(self, code: str) -> Answer:
        request = self._client.execute(code)
        value, received = await self._messages(request)
        await self._reply(request, "ok")
        return Answer(value, received)

    async def reply_s(self, code: str) -> float:
        """To the reply alone, whatever the cell may have shown by then: what it would be at best."""
        begun = time.perf_counter()
        request = self._client.execute(code)
        await self._reply(request, "ok")
        took = time.perf_counter() - begun
        await self._messages(request)
        return took

    async def interrupted_s(self) -> float:
        request = self._client.execute(FOREVER)
        while True:
            message = await self._client.get_iopub_msg(timeout=READY_S)
            if message["msg_type"] == "stream" and message["parent_header"].get("msg_id") == request:
                break
        begun = time.perf_counter()
        await self._manager.interrupt_kernel()
        await self._messages(request)
        await self._reply(request, "error")
        return time.perf_counter() - begun

    async def close(self) -> None:
        self._client.stop_channels()
        await self._manager.shutdown_kernel(now=True)

    async def _messages(self, request: str) -> tuple[str | None, int]:
        """Everything the cell shows, until the kernel says it is idle: only then is the output complete."""
        value, received = None, 0
        while True:
            message = await self._client.get_iopub_msg(timeout=READY_S)
            if message["parent_header"].get("msg_id") != request:
                continue
            content = message["content"]
            match message["msg_type"]:
                case "execute_result":
                    value = content["data"]["text/plain"]
                case "stream":
                    received += len(content["text"])
                case "status" if content["execution_state"] == "idle":
                    return value, received
                case _:
                    pass

    async def _reply(self, request: str, status: str) -> None:
        while True:
            message = await self._client.get_shell_msg(timeout=READY_S)
            if message["parent_header"].get("msg_id") == request:
                if message["content"]["status"] != status:
                    raise RuntimeError(f"ipykernel: {message['content']}")
                return
