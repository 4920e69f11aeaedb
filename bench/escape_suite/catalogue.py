"""All programs, in one list each."""

from __future__ import annotations

from bench.escape_suite import (
    benign,
    benign_data,
    channel,
    guarded_files,
    kernel,
    language,
    neighbours,
    network,
    open_escapes,
    plants,
    processes,
    reads,
    secret,
    writes,
)
from bench.escape_suite.program import Benign, Hostile

MODULES = (reads, writes, network, processes, kernel, language, guarded_files, secret, channel, neighbours, plants)
HOSTILE: list[Hostile] = [program for module in MODULES for program in module.PROGRAMS]
AWAITED: list[Hostile] = open_escapes.PROGRAMS
BENIGN: list[Benign] = [*benign.PROGRAMS, *benign_data.PROGRAMS, *plants.BENIGN]
