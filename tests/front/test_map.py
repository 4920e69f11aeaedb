"""`pinfold map`: what is wired is drawn, what is taken out is gone, and nothing in a name can change the drawing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.app.diagnostics.system_map import Edge, Node, SystemMap
from pinfold.front.cli.commands.diagnostics import mermaid, svg
from pinfold.front.pages import map_page

pytestmark = pytest.mark.integration
Pinfold = Callable[..., Any]
SECRET = "tok-heron-0123456789abcdef"
SVG = "{http://www.w3.org/2000/svg}"


@st.composite
def wirings(draw: st.DrawFn) -> SystemMap:
    count = draw(st.integers(1, 12))
    texts = st.text(max_size=50)
    kinds = st.sampled_from(("model", "place", "tools", "store", "engine"))
    nodes = tuple(
        Node(id=f"i{n}", kind=draw(kinds), title=draw(texts), lines=tuple(draw(st.lists(texts, max_size=3))))
        for n in range(count)
    )
    ends = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1))
    pairs = draw(st.lists(ends, max_size=15, unique=True))
    edges = tuple(Edge(source=f"i{a}", target=f"i{b}", words=draw(texts)) for a, b in pairs if a < b)
    return SystemMap(nodes=nodes, edges=edges)


def test_as_text_each_thing_is_followed_by_what_it_leads_to() -> None:
    nodes = (Node(id="a", kind="engine", title="engine", lines=("mode ask",)), Node(id="b", kind="store", title="log"))
    found = SystemMap(nodes=nodes, edges=(Edge(source="a", target="b", words="keeps"),))
    assert list(map_page(found)) == ["engine", "    mode ask", "  -> keeps log", "log"]


@given(wirings())
def test_the_picture_shows_every_line_of_the_text_and_no_name_breaks_it(found: SystemMap) -> None:
    root = ET.fromstring(svg(found))
    rows = [(row.text or "", float(row.get("y", "0"))) for row in root.iter(f"{SVG}text")]
    assert [text for text, _ in rows] == list(map_page(found, 160))
    assert all(0 < y <= float(root.get("height", "0")) for _, y in rows)
    assert sorted(y for _, y in rows) == [y for _, y in rows]


@given(wirings())
def test_no_name_can_change_the_syntax_of_the_flowchart(found: SystemMap) -> None:
    lines = list(mermaid(found))
    assert lines[0] == "flowchart LR"
    assert len(lines) == 1 + len(found.nodes) + len(found.edges)
    text = r'(?:[^"<>#&`|\[\]{}()\\;\n]|#\d+;|<br/>)*'
    for line in lines[1 : 1 + len(found.nodes)]:
        assert re.fullmatch(rf'  n\d+[(\[{{>]+"{text}"[)\]}}]+', line), line
    for line in lines[1 + len(found.nodes) :]:
        assert re.fullmatch(rf'  n\d+ -->(\|"{text}"\|)? n\d+', line), line


def test_what_is_configured_is_drawn_and_what_is_unplugged_is_gone(
    pinfold: Pinfold, tmp_path: Path, workspace: Path
) -> None:
    config = tmp_path / "xdg" / "config" / "pinfold"
    (config / "tools").mkdir(parents=True, mode=0o700)
    config.chmod(0o700)
    (config / "config.toml").write_text(
        "[model]\nname = 'http://127.0.0.1:9/v1#small'\n[models]\nfallback = ['openai:gpt-5']\nescalate = 'gpt-5-pro'\n"
        "[network]\nallow = ['api.example.org']\n[data.shop]\nurl = 'postgresql://me:hunter22heron@db.example.org/shop'\n"
    )
    server = {"command": "/bin/true", "reach": "workspace"}
    servers = {"mcpServers": {"birds": server, "far": {"type": "http", "url": "https://far.example.org/mcp"}}}
    (config / "mcp.json").write_text(json.dumps(servers))
    (config / "mcp.json").chmod(0o600)
    (config / "tools" / "heron.yaml").write_text("name: heron\ndescription: Say it.\ncommand: [echo, heron]\n")
    kept = {"secrets": {"BIRD_TOKEN": {"hosts": ["api.example.org"], "value": SECRET}}}
    (config / "secrets.json").write_text(json.dumps(kept))
    (config / "secrets.json").chmod(0o600)
    done = pinfold("map", "--json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    nodes = {node["id"]: (node["title"], node["lines"]) for node in found["nodes"]}
    edges = {(edge["source"], edge["target"]): edge["words"] for edge in found["edges"]}
    first, second = "model:http://127.0.0.1:9/v1#small", "model:openai:gpt-5"
    assert edges["engine", first] == "asks"
    assert edges[first, second] == "if it fails"
    assert edges[first, "model:gpt-5-pro"] == "if it is stuck"
    assert nodes["place:api.openai.com:443"][0] == "api.openai.com:443"
    assert nodes[f"place:{first.removeprefix('model:')}"][0] == "this machine"
    assert nodes["sandbox"] == ("sandbox: namespaces", ["auto takes namespaces", "full isolation verified"])
    assert nodes["tools:web"][1] == ["1 tool", "fetch"]
    assert nodes["tools:tools"][1][:2] == ["1 tool", "heron"]
    assert nodes["mcp:birds"][1] == ["MCP over stdio", "not seen yet", "not trusted"]
    assert nodes["reach:birds"] == ("a sandbox of its own", ["reach workspace"])
    assert ("mcp:far", "reach:https://far.example.org/mcp") in edges
    assert ("tools:sql", "data:shop") in edges
    assert nodes["egress"][1] == ["api.example.org", "secrets: BIRD_TOKEN"]
    assert nodes["workspace"][0] == str(workspace)
    del servers["mcpServers"]["birds"]
    (config / "mcp.json").write_text(json.dumps(servers))
    (config / "tools" / "heron.yaml").unlink()
    drawn, after = pinfold("map"), pinfold("map", "--to", "svg", "-o", str(tmp_path / "map.svg"))
    assert (drawn.code, after.code, after.out) == (0, 0, "")
    picture = (tmp_path / "map.svg").read_text()
    texts = "".join(ET.fromstring(picture).itertext())
    for page in (drawn.out, texts):
        assert "far.example.org" in page
        assert "BIRD_TOKEN" in page
        for gone in ("birds", "heron", SECRET, "hunter22"):
            assert gone not in page
    assert not re.search(r"href|<image|<script|<style|@import|url\((?!#)", picture)
