"""A real session, told while it happens and told again from its log."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import anyio
import pytest
from tests.front.chat.recorded_output import KeptTranscript

from pinfold.app import Options, acquire
from pinfold.events import Entry, OutputDelta, Say, TurnEnded, new_session_id, new_turn_id
from pinfold.front.chat.renderers.event_renderer import EventRenderer

pytestmark = [pytest.mark.integration, pytest.mark.skipif(sys.platform != "linux", reason="namespaces are Linux's")]
PICTURE = """
import struct, zlib
def part(kind, body):
    return struct.pack('>I', len(body)) + kind + body + struct.pack('>I', zlib.crc32(kind + body))
rows = b''.join(b'\\0' + bytes([255, 0, 0] * 10 + [0, 0, 255] * 10) for _ in range(8))
png = b'\\x89PNG\\r\\n\\x1a\\n' + part(b'IHDR', struct.pack('>IIBBBBB', 20, 8, 8, 2, 0, 0, 0)) + part(b'IDAT', zlib.compress(rows)) + part(b'IEND', b'')
display({'image/png': png, 'text/plain': 'a flag'}, raw=True)
"""
TABLE = """
class Frame:
    def _repr_html_(self): return '<table><tr><th>car</th><th>price</th></tr><tr><td>Golf</td><td>12</td></tr></table>'
    def __repr__(self): return 'car price'
Frame()
"""
SCRIPT = (
    {"text": "I **look** first.", "calls": [{"tool": "python", "args": {"code": code}} for code in (PICTURE, TABLE)]},
    {
        "calls": [
            {
                "tool": "python",
                "args": {
                    "code": "import sys\nfor n in range(3000): print('line', n)\nprint('careful', file=sys.stderr)\n7 * 6"
                },
            }
        ]
    },
    {"calls": [{"tool": "python", "args": {"code": "open('note.txt', 'w').write('new')\n1 / 0"}}]},
    {"text": "Done:\n\n- one\n- two\n\n```python\nx = 1\n```\n"},
)


@pytest.fixture
def _terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


@pytest.mark.usefixtures("_terminal")
async def test_a_session_looks_the_same_while_it_happens_and_when_it_is_opened_again(
    tmp_path: Path, workspace: Path
) -> None:
    script = tmp_path / "script.jsonl"
    script.write_text("\n".join(map(json.dumps, SCRIPT)), encoding="utf-8")
    session = new_session_id()
    live, again = KeptTranscript(), KeptTranscript()
    streamed = last = 0
    options = Options(workspace=workspace, model=f"scripted:{script}", mode="auto")
    with anyio.fail_after(60):
        async with acquire(tmp_path / session, session, options) as owner:
            renderer = EventRenderer(live, owner.blob, picture="blocks")
            async with owner.subscribe() as feed:
                await owner.submit(Say(turn=new_turn_id(), text="look"))
                async for item in feed:
                    await renderer.render(item)
                    streamed += isinstance(item, OutputDelta)
                    if isinstance(item, Entry) and isinstance(item.event, TurnEnded):
                        last = item.seq
                        break
            renderer = EventRenderer(again, owner.blob, picture="blocks")
            async with owner.subscribe() as feed:
                async for item in feed:
                    await renderer.render(item)
                    if isinstance(item, Entry) and item.seq == last:
                        break
    assert streamed
    assert any(one and "line" in one for one in live.lives)
    assert live.sent == again.sent
    lines = [line.strip() for line in live.text.split("\n")]
    assert lines.count("▀" * 20) == 4
    assert "\x1b[38;2;255;0;0;48;2;255;0;0m▀" in live.sent
    assert f"picture: pinfold sessions show {session} --display 1" in lines
    assert "Golf      12" in lines
    assert "car price" not in lines
    assert "... 2,978 lines more: /output 3" in lines
    assert lines[lines.index("line 2999") + 1 :][:2] == ["careful", "42"]
    assert "ZeroDivisionError: division by zero" in lines
    assert "A note.txt  +1 -0" in lines
    assert lines[-6:] == ["• one", "• two", "", "x = 1", "", ""]
