"""Forges answers on the channel to the host, to make it take them for those of another cell."""

from __future__ import annotations

from bench.escape_suite.program import hostile

FORGE = """
import socket, struct
def is_channel(fd):
    try: return socket.socket(fileno=os.dup(fd)).type == socket.SOCK_STREAM
    except OSError: return False
[channel] = filter(is_channel, range(3, 100))
def own():
    frame = sys._getframe(1)
    while 'id' not in frame.f_locals.get('header', ()): frame = frame.f_back
    return frame.f_locals['header']['id']
def forge(header, body=b'forged'):
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    os.write(channel, struct.pack('<II', len(encoded), len(body)) + encoded + body)
"""
FORGED = {
    "an answer to the next cell": "forge({'id': 2, 'status': 'ok', 'value': 6})",
    "an answer to a cell long after": "forge({'id': 99, 'status': 'ok', 'value': 6})",
    "an answer to nobody": "forge({'id': -1, 'status': 'ok', 'value': 6})",
    "a second hello": "forge({'id': 0, 'status': 'hello', 'protocol': 1})",
    "a refusal": "forge({'id': own(), 'status': 'refused'})",
    "a status of its own": "forge({'id': own(), 'status': 'root', 'value': 6})",
    "texts that do not add up": "forge({'id': own(), 'status': 'ok', 'value': 99})",
    "a negative length": "forge({'id': own(), 'status': 'ok', 'value': -1, 'error': 7})",
    "a huge number": 'forge(b\'{"id": 1, "status": "ok", "value": 1\' + b\'0\' * 3000 + b\'}\')',
    "no header": "forge(b'')",
    "a header that is no object": "forge(b'[1, 2]')",
    "a deep header": "forge(b'[' * 4000)",
    "a header that is no text": "forge(b'\\xff\\xfe\\x00')",
    "not a number": 'forge(b\'{"id": NaN, "status": "ok", "value": 6}\')',
    "an answer from a thread": (
        "import threading\nt = threading.Thread(target=forge, args=[{'id': 2, 'status': 'ok', 'value': 6}]); t.start(); t.join()"
    ),
    "an answer from a child": (
        "r, w = socket.socketpair(); socket.send_fds(r, [b'x'], [channel]); child = os.fork()\n"
        "if child == 0:\n    _, [channel], _, _ = socket.recv_fds(w, 9, 1); forge({'id': 2, 'status': 'ok', 'value': 6}); os._exit(0)\n_ = os.waitpid(child, 0)"
    ),
}

ADVANCE = {
    "an answer in advance": "forge({'id': 1, 'status': 'ok', 'value': 6})\ntime.sleep(0.05)\nforge({'id': 2, 'status': 'ok', 'value': 6})\ntime.sleep(0.05)"
}
"""Right if requests were numbered one after the other."""

PROGRAMS = [
    *hostile(
        "channel", "checked-replies", "forged", {k: FORGE + v for k, v in FORGED.items()}, then="6 * 7", timeout_s=5
    ),
    *hostile(
        "channel", "secret-numbers", "forged", {k: FORGE + v for k, v in ADVANCE.items()}, then="6 * 7", timeout_s=5
    ),
]
