"""Declared requests against a real server: values encoded for their place, secrets for one host and never told."""

from __future__ import annotations

import json
import traceback
from collections.abc import Mapping
from typing import Any

import pytest
from tests.tools.real_services import PlainWeb, Server, one_secret

from pinfold.tools import BadCall, Registry, Result, ToolFailed
from pinfold.tools.declared.tools import yaml_tool
from pinfold.tools.ports import Fetched, Ports

pytestmark = pytest.mark.safety
KEY = 's3cr"et\\Value/+='


async def call(file: str, server: Server, /, *, web: Any = None, secret_host: str = "127.0.0.1", **args: Any) -> Result:
    ports = Ports(web=web or PlainWeb(), secret=one_secret("KEY", secret_host, KEY))
    tool = yaml_tool(file.replace("SERVER", server.url).encode(), "t.yaml", ports)
    assert tool.reach_of(args) == ("network", server.url.removeprefix("http://"))
    return await Registry([tool]).call(tool.name, args)


GET = """
name: t
description: d
parameters:
  id: string
  q: {type: string, required: false}
  many: {type: array, required: false}
http:
  url: SERVER/items/{id}/x?fixed=1&q={q}
  query: {also: "{q}", tag: "{many}", n: 5}
  headers: {X-Note: "n {id}"}
"""


async def test_values_are_encoded_for_their_place(server: Server) -> None:
    result = await call(GET, server, id="a/b?c#d&e f", q="x&y=1 #é", many=["1&2", 3])
    [asked] = server.asked
    assert asked.path == (
        "/items/a%2Fb%3Fc%23d%26e%20f/x?fixed=1&q=x%26y%3D1%20%23%C3%A9&also=x%26y%3D1+%23%C3%A9&tag=1%262&tag=3&n=5"
    )
    assert asked.headers["x-note"] == "n a/b?c#d&e f"
    assert result.untrusted
    assert result.value["method"] == "GET"
    assert [(one.to, one.out) for one in result.sent] == [(server.url.removeprefix("http://"), 0)]


@pytest.mark.parametrize(
    ("value", "goes"),
    [
        ("..", ""),
        (".", ""),
        ("", ""),
        ("x\r\nHost: evil", ""),
        ("../../admin", "..%2F..%2Fadmin"),
        ("%2e%2e", "%252e%252e"),
        ("é", "%C3%A9"),
    ],
)
async def test_no_value_leads_elsewhere(server: Server, value: str, goes: str) -> None:
    text = GET.replace('  headers: {X-Note: "n {id}"}\n', "") if goes else GET
    if goes:
        await call(text, server, id=value)
        assert [asked.path for asked in server.asked] == [f"/items/{goes}/x?fixed=1&q=&n=5"]
    else:
        with pytest.raises(ToolFailed, match=r"part of the address|plain characters only"):
            await call(text, server, id=value)
        assert server.asked == []


async def test_what_was_not_given_is_left_out(server: Server) -> None:
    await call(GET, server, id="a")
    assert server.asked[0].path == "/items/a/x?fixed=1&q=&n=5"


POST = """
name: t
description: d
parameters: {text: string, tags: {type: array, required: false}, n: {type: int, default: 2}}
http:
  url: SERVER/notes
  body: {note: {text: "{text}", tags: "{tags}", said: "<{text}>"}, list: ["{n}", fixed, true]}
"""


async def test_a_body_is_json_with_values_of_their_own_type(server: Server) -> None:
    hostile = '", "admin": true, "x": "{n}'
    await call(POST, server, text=hostile, tags=["a"])
    [asked] = server.asked
    assert (asked.method, asked.headers["content-type"]) == ("POST", "application/json")
    assert json.loads(asked.body) == {
        "note": {"text": hostile, "tags": ["a"], "said": f"<{hostile}>"},
        "list": [2, "fixed", True],
    }
    await call(POST, server, text="x")
    assert json.loads(server.asked[1].body)["note"] == {"text": "x", "said": "<x>"}


async def test_a_form_and_a_plain_text_are_bodies_too(server: Server) -> None:
    head = "name: t\ndescription: d\nparameters: {a: string}\nhttp:\n  url: SERVER/f\n"
    await call(head + "  form: {x: '{a}', y: z}", server, a="1&2=3")
    await call(head + "  method: put\n  body: 'say {a}'", server, a="hi")
    form, text = server.asked
    assert (form.headers["content-type"], form.body) == ("application/x-www-form-urlencoded", b"x=1%262%3D3&y=z")
    assert (text.method, text.body) == ("PUT", b"say hi")


WITH_SECRET = """
name: t
description: d
parameters: {a: {type: string, default: x}}
http:
  url: SERVER/{a}
  headers: {Authorization: "Bearer ${secret:KEY}", X-A: "{a}"}
"""


async def test_a_secret_reaches_the_server_and_nobody_else(server: Server) -> None:
    """The server says back all it was sent, in three forms."""
    result = await call(WITH_SECRET, server)
    assert server.asked[0].headers["authorization"] == f"Bearer {KEY}", "the positive control: it was sent"
    for said in (result.text, json.dumps(result.value)):
        assert KEY not in said
        assert json.dumps(KEY)[1:-1] not in said
        assert "[redacted]" in said
    server.answers["/plain"] = (200, "text/plain", f"you sent {KEY}".encode())
    assert (await call(WITH_SECRET, server, a="plain")).text == "you sent [redacted]"
    server.answers["/err"] = (403, "text/plain", f"bad key {KEY}".encode())
    with pytest.raises(ToolFailed) as caught:
        await call(WITH_SECRET, server, a="err")
    assert "answered 403: bad key [redacted]" in str(caught.value)
    assert caught.value.untrusted
    assert len(caught.value.sent) == 1


async def test_a_failure_on_the_way_does_not_tell_it_either(server: Server) -> None:
    class Careless(PlainWeb):
        def __init__(self, error: type[Exception]) -> None:
            self.error = error

        async def request(self, *args: Any, headers: Mapping[str, str], **more: Any) -> Fetched:  # noqa: ARG002
            raise self.error(f"could not send {dict(headers)}")

    for error, said in ((RuntimeError, "RuntimeError"), (BadCall, "Bearer [redacted]")):
        with pytest.raises(ToolFailed) as caught:
            await call(WITH_SECRET, server, web=Careless(error))
        assert said in str(caught.value)
        assert "s3cr" not in "".join(traceback.format_exception(caught.value))


async def test_a_request_that_may_have_arrived_is_told_as_such(server: Server) -> None:
    class Lost(PlainWeb):
        async def request(self, *_: Any, **__: Any) -> Fetched:
            raise BadCall("no answer", may_have_happened=True)

    with pytest.raises(ToolFailed) as caught:
        await call(WITH_SECRET, server, web=Lost())
    assert caught.value.may_have_happened


async def test_a_secret_of_another_host_is_not_sent(server: Server) -> None:
    with pytest.raises(ToolFailed, match=r"the secret KEY is not set for 127\.0\.0\.1; the user can set it"):
        await call(WITH_SECRET, server, secret_host="elsewhere.example")
    assert server.asked == []


async def test_a_value_cannot_name_a_secret(server: Server) -> None:
    await call(WITH_SECRET, server, a="${secret:KEY}")
    assert server.asked[0].headers["x-a"] == "${secret:KEY}"


async def test_an_answer_can_be_chosen_from_cut_and_refused(server: Server) -> None:
    head = "name: t\ndescription: d\nhttp:\n  url: SERVER/j\n"
    server.answers["/j"] = (200, "application/json", b'[{"title": "a"}, {"title": "b"}]')
    chosen = await call(head + "  select: '*.title'", server)
    assert (chosen.text, chosen.value) == ('["a","b"]', ["a", "b"])
    with pytest.raises(ToolFailed, match=r"the answer has no '\*\.name'"):
        await call(head + "  select: '*.name'", server)
    server.answers["/j"] = (200, "text/plain", b"x" * 50)
    assert (await call(head + "  max_bytes: 10", server)).text == "xxxxxxxxxx\n[only the first 10 bytes were read]"


async def test_without_a_way_out_it_says_so() -> None:
    tool = yaml_tool(b"name: t\ndescription: d\nhttp: {url: 'https://h/'}", "t.yaml", Ports())
    with pytest.raises(ToolFailed, match="no other machine can be reached in this session"):
        await Registry([tool]).call("t", {})
