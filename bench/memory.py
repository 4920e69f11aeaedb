"""How well and how fast notes are found: `./.venv/bin/python bench/memory.py [--locomo FILE] [--embeddings NAME]`

Speed: the median search among 5,000 and among 100,000 notes, with opening the file. With `--locomo`, recall at 10 by category on
LoCoMo (`data/locomo10.json` of github.com/snap-research/locomo, CC BY-NC: not part of Pinfold), where each turn of a conversation
is a note and each question asks for the turns that answer it. With `--embeddings`, as `[memory] embeddings`, also by meaning; the
hybrid must be at least as good in every category. Exits 0 only if all of it holds.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import sqlite3
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pinfold.memory import Embedder, Memory
from pinfold.model import Access
from pinfold.model.embeddings import embeddings_named

RECALL = 0.68
BOUNDS_MS = {5_000: 5.0, 100_000: 30.0}
SEARCHES = 200
CATEGORIES = {1: "several turns", 2: "time", 3: "world knowledge", 4: "one turn"}
"""Those with an answer; the fifth has none."""
_NOTES = "INSERT INTO notes (at, workspace, session, text, tags, trusted) VALUES ('', '/w', ?, ?, '[]', 1)"


@dataclass(frozen=True)
class Question:
    text: str
    category: int
    answers: frozenset[str]


@dataclass(frozen=True)
class Conversation:
    turns: Sequence[tuple[str, int, str]]
    """Id, session, text."""
    questions: Sequence[Question]


def read_locomo(file: Path) -> list[Conversation]:
    found: list[Conversation] = []
    for sample in json.loads(file.read_text(encoding="utf-8")):
        said: Mapping[str, Any] = sample["conversation"]
        sessions = sorted(int(match[1]) for key in said if (match := re.fullmatch(r"session_(\d+)", key)))
        turns = [
            (turn["dia_id"], number, " ".join([f"{turn['speaker']}: {turn['text']}", turn.get("blip_caption", "")]))
            for number in sessions
            for turn in said[f"session_{number}"]
        ]
        known = {id_ for id_, _, _ in turns}
        questions: list[Question] = []
        for item in sample["qa"]:
            named = re.findall(r"D(\d+):(\d+)", " ".join(item["evidence"]))
            answers = frozenset(f"D{int(session)}:{int(turn)}" for session, turn in named) & known
            if answers and item["category"] in CATEGORIES:
                questions.append(Question(item["question"], item["category"], answers))
        found.append(Conversation(turns, questions))
    return found


def fill(file: Path, texts: Sequence[tuple[str, str]]) -> None:
    """Notes of (session, text), written at once: `remember` has a transaction for each."""
    number = Memory(file, "/w", "s").remember("first", trusted=True)
    connection = sqlite3.connect(file)
    connection.execute("DELETE FROM notes WHERE id = ?", (number,))
    connection.executemany(_NOTES, texts)
    connection.commit()
    connection.close()


def recall_at_10(conversations: Sequence[Conversation], folder: Path, embedder: Embedder | None) -> dict[int, float]:
    """By category, and of all as 0."""
    scores: dict[int, list[float]] = defaultdict(list)
    for number, conversation in enumerate(conversations):
        file = folder / f"{number}.db"
        if not file.exists():
            fill(file, [(f"s_{session}", text) for _, session, text in conversation.turns])
        memory = Memory(file, "/w", "s", embedder=embedder)
        if embedder:
            for _ in range(len(conversation.turns) // 2048 + 1):
                memory.recall("anything", 1)
        first = min(note.id for note in memory.all())
        for question in conversation.questions:
            notes = memory.recall(question.text, 10)
            seen = {conversation.turns[note.id - first][0] for note in notes}
            score = len(seen & question.answers) / len(question.answers)
            scores[question.category].append(score)
            scores[0].append(score)
    return {category: statistics.mean(values) for category, values in scores.items()}


def measure_speed(texts: Sequence[str], questions: Sequence[str], folder: Path) -> bool:
    rng = random.Random(1)
    is_good = True
    for size, bound in BOUNDS_MS.items():
        file = folder / f"{size}.db"
        fill(file, [(f"s_{at // 20}", f"{rng.choice(texts)} {rng.choice(texts)[:40]}") for at in range(size)])
        memory = Memory(file, "/w", "s")
        took: list[float] = []
        began_cpu = time.process_time()
        for words in rng.choices(questions, k=SEARCHES):
            began = time.perf_counter()
            memory.recall(words)
            took.append((time.perf_counter() - began) * 1000)
        cpu = (time.process_time() - began_cpu) * 1000 / SEARCHES
        middle, high = statistics.median(took), statistics.quantiles(took, n=20)[-1]
        is_good = is_good and middle <= bound
        print(
            f"{size:>7,} notes: median {middle:5.1f} ms (bound {bound:g}), p95 {high:5.1f} ms, {cpu:.1f} ms of CPU each"
        )
    return is_good


def show(name: str, scores: Mapping[int, float], count: int) -> None:
    parts = "  ".join(f"{words} {scores[category]:.4f}" for category, words in CATEGORIES.items())
    print(f"{name:<8} R@10 {scores[0]:.4f} of {count:,} questions:  {parts}")


def made_up() -> tuple[list[str], list[str]]:
    """Notes and questions of common and rare words, where there is no LoCoMo."""
    rng = random.Random(0)
    words = ["".join(rng.choices("abcdefghiklmnoprstuv", k=rng.randint(3, 9))) for _ in range(4000)]
    weights = [1 / (at + 3) for at in range(len(words))]

    def sentence(least: int, most: int) -> str:
        return " ".join(rng.choices(words, weights, k=rng.randint(least, most)))

    return [sentence(8, 30) for _ in range(5000)], [sentence(3, 8) for _ in range(500)]


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--locomo", type=Path, metavar="FILE")
    parser.add_argument("--embeddings", metavar="NAME")
    given = parser.parse_args()
    conversations = read_locomo(given.locomo) if given.locomo else []
    texts = [text for one in conversations for _, _, text in one.turns]
    questions = [question.text for one in conversations for question in one.questions]
    if not conversations:
        texts, questions = made_up()
    is_good = True
    with tempfile.TemporaryDirectory(prefix="pinfold-memory-") as name:
        folder = Path(name)
        if conversations:
            by_words = recall_at_10(conversations, folder, None)
            show("words", by_words, len(questions))
            is_good = by_words[0] >= RECALL
            if given.embeddings:
                embedder = embeddings_named(given.embeddings, Access(keys=os.environ))
                hybrid = recall_at_10(conversations, folder, embedder)
                show("hybrid", hybrid, len(questions))
                is_good = is_good and all(hybrid[category] >= by_words[category] for category in by_words)
        is_good = measure_speed(texts, questions, folder) and is_good
    print("all of it holds" if is_good else "NOT all of it holds")
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
