"""Tokens are counted as tiktoken's own o200k_base counts them, offline."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path

import pytest
from bench.tokens.o200k import PATTERN, ranks, tokens
from bench.tokens.weight import tokens_of_lines
from hypothesis import given, settings
from hypothesis import strategies as st
from tiktoken_ext.openai_public import o200k_base

pytestmark = pytest.mark.unit

SOURCE = "https://openaipublic.blob.core.windows.net/encodings/o200k_base.tiktoken"


def test_it_is_the_encoding_that_tiktoken_would_download(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken takes a file from its cache only if the hash is the published one."""
    lines = b"".join(b64encode(token) + f" {rank}\n".encode() for token, rank in ranks().items())
    (tmp_path / hashlib.sha1(SOURCE.encode()).hexdigest()).write_bytes(lines)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("https_proxy", "http://127.0.0.1:9")
    published = o200k_base()
    assert published["pat_str"] == PATTERN
    assert published["mergeable_ranks"] == ranks()


def test_special_tokens_and_lone_surrogates_are_counted_as_text() -> None:
    assert tokens("<|endoftext|>") > 1
    assert tokens("\ud800") == tokens("\ufffd")


@settings(max_examples=200)
@given(
    st.lists(
        st.tuples(st.characters(categories=["L", "N"]), st.text(max_size=20).map(lambda text: text.replace("\r", " "))),
        min_size=1,
        max_size=4,
    ),
    st.integers(1, 4),
)
def test_blocks_of_lines_add_up(lines: list[tuple[str, str]], times: int) -> None:
    block = "".join(f"{first}{rest}\n" for first, rest in lines)
    assert tokens(block * times) == tokens_of_lines(block, times)


def test_what_does_not_add_up_is_refused() -> None:
    assert tokens("\n a\n" * 2) != 2 * tokens("\n a\n")
    with pytest.raises(ValueError, match="add up"):
        tokens_of_lines("\n a\n", 2)
