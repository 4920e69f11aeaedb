"""Runs llama.cpp's server in a process of its own until standard input ends. Needs xllamacpp, and nothing of ours."""

import importlib
import json
import sys
from typing import Any

# Not in the environment of the tests: nothing can be known of its types.
xllamacpp: Any = importlib.import_module("xllamacpp")

options = json.loads(sys.argv[1])
params = xllamacpp.CommonParams()
params.model.path = options["weights"]
params.hostnames = ["127.0.0.1"]
params.port = 0
params.n_ctx = options["context"]
params.n_parallel = 1
params.cpuparams.n_threads = 1
params.use_jinja = True
params.endpoint_slots = True
params.api_keys = options["keys"]
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
