"""Files are known by their content, and a broken one is told as such."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.model.errors import CannotServe
from pinfold.model.local.server.model_server import facts_of

pytestmark = pytest.mark.unit


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def head(*facts: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(facts)) + b"".join(facts)


def test_facts_are_read_up_to_the_vocabulary(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(
        head(
            text("general.name") + struct.pack("<I", 8) + text("Heron"),
            text("general.tags") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
            text("heron.context_length") + struct.pack("<II", 4, 4096),
            text("heron.rope.freq_base") + struct.pack("<If", 6, 0.5),
            text("tokenizer.ggml.tokens") + b"never looked at",
        )
    )
    facts = facts_of(path)
    assert facts.values == {"general.name": "Heron", "heron.context_length": 4096, "heron.rope.freq_base": 0.5}
    assert facts.number(".context_length") == 4096
    assert facts.number(".pooling_type") is None


@given(data=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda rest: b"GGUF" + rest)))
def test_any_bytes_are_a_file_of_facts_or_refused_in_one_line(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        refused = ""
        try:
            facts_of(Path(file.name))
        except CannotServe as error:
            refused = str(error)
    assert "\n" not in refused
