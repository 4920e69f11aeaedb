"""Serves a GGUF with llama.cpp on loopback until its standard input closes. Runs in the baseline's environment."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

xllamacpp: Any = import_module("xllamacpp")


def main() -> None:
    weights, port, name, threads = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = weights
    params.model_alias = {name}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = 8192
    params.n_parallel = 1
    params.use_jinja = True
    params.sampling.temp = 0
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)
    sys.stdin.read()


main()
