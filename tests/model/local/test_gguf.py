"""Files are known by their content, and a broken one is told as such."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pinfold.model.errors import CannotServe
from pinfold.model.local.server.model_server import number_in, read_head

pytestmark = pytest.mark.unit


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def head(*facts: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(facts)) + b"".join(facts)


def test_numbers_are_found_by_their_names(tmp_path: Path) -> None:
    path = tmp_path / "a.gguf"
    path.write_bytes(
        head(
            text("general.name") + struct.pack("<I", 8) + text("Heron"),
            text("general.tags") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("b"),
            text("heron.context_length") + struct.pack("<II", 4, 4096),
            text("heron.embedding_length") + struct.pack("<IQ", 10, 1 << 33),
            text("heron.rope.freq_base") + struct.pack("<If", 6, 0.5),
            text("tokenizer.ggml.tokens") + b"never looked at",
        )
    )
    found = read_head(path)
    assert number_in(found, "context_length") == 4096
    assert number_in(found, "embedding_length") == 1 << 33
    assert number_in(found, "freq_base") is None
    assert number_in(found, "pooling_type") is None


@given(data=st.one_of(st.binary(max_size=200), st.binary(max_size=200).map(lambda rest: b"GGUF" + rest)))
def test_any_bytes_are_the_head_of_a_file_or_refused_in_one_line(data: bytes) -> None:
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        refused = ""
        try:
            number_in(read_head(Path(file.name)), "context_length")
        except CannotServe as error:
            refused = str(error)
    assert "\n" not in refused
    assert bool(refused) is not (data.startswith(b"GGUF") and len(data) >= len(head()))
