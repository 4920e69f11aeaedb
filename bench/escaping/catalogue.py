"""All programs, in one list each."""

from __future__ import annotations

from bench.escaping import (
    awaited,
    benign,
    benign_data,
    channel,
    guarded,
    kernel,
    language,
    neighbours,
    network,
    planting,
    processes,
    reading,
    secret,
    writing,
)
from bench.escaping.program import Benign, Hostile

MODULES = (reading, writing, network, processes, kernel, language, guarded, secret, channel, neighbours, planting)
HOSTILE: list[Hostile] = [program for module in MODULES for program in module.PROGRAMS]
AWAITED: list[Hostile] = awaited.PROGRAMS
BENIGN: list[Benign] = [*benign.PROGRAMS, *benign_data.PROGRAMS, *planting.BENIGN]
