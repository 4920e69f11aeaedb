"""A model's reply: text as it arrives, reasoning in one line, nothing twice."""

from __future__ import annotations

import time

from anyio.lowlevel import checkpoint
from rich.console import RenderableType
from rich.text import Text

from pinfold.events import ModelReplied
from pinfold.front.chat.renderers.markdown import LIVE_ROWS, MarkdownStream
from pinfold.front.chat.renderers.output import TAIL
from pinfold.front.chat.renderers.transcript import PIECE, LastRows, LineSanitizer, SpacedTranscript
from pinfold.text import numerous, presentable, presentable_line

_CUT_OFF = {
    "length": "cut off: the model reached its output limit",
    "filter": "cut off by the model's provider",
}


class ReplyRenderer:
    def __init__(self, transcript: SpacedTranscript) -> None:
        self._transcript = transcript
        self._speech: MarkdownStream | None = None
        self._streamed: list[str] = []
        self._said: list[str] = []
        """The code blocks of the last reply."""
        self._answered: str | None = None
        self._has_thought = False
        """The reasoning of this reply is shown already."""
        self._thinking = _Thinking(transcript)
        self.thinking = False
        self.thought = ""
        """The last reasoning, whole."""

    def describe_activity(self) -> str:
        if self._speech:
            return "answering"
        return "thinking" if self._thinking.begun else ""

    def live(self) -> RenderableType | None:
        words = self._speech.render_unfinished() if self._speech else self._thinking.render_unfinished()
        return LastRows(words, LIVE_ROWS) if words else None

    def has_said(self, code: str) -> bool:
        """True if the last reply contains this code."""
        return code.strip() in self._said

    def add(self, text: str, *, reasoning: bool) -> None:
        if reasoning:
            self._thinking.add(text, whole=self.thinking)
            return
        self._end_thinking()
        if self._speech is None:
            self._transcript.gap()
            self._speech = MarkdownStream(self._transcript)
        self._streamed.append(text)
        self._speech.add(text)

    def mark_cut_off(self) -> None:
        """The unfinished reply is void: another one follows, or none."""
        self._end_thinking()
        if self._speech:
            self._speech.end()
            self._note("that reply was cut off")
        self._speech, self._streamed = None, []
        self._said, self._has_thought = [], False

    async def finish(self, event: ModelReplied) -> None:
        """Write what was not streamed."""
        if event.reasoning and not self._thinking.begun and not self._has_thought:
            self._thinking.add(event.reasoning, whole=self.thinking, timed=False)
        self._end_thinking()
        self.thought = event.reasoning or self.thought
        streamed = "".join(self._streamed)
        rest = event.text
        if self._speech and event.text.startswith(streamed):
            rest = event.text[len(streamed) :]
        elif self._speech and streamed.rstrip() == event.text.rstrip():
            rest = ""
        elif self._speech:
            self._speech.end()
            self._speech = None
            self._note("the whole reply:")
        for at in range(0, len(rest), PIECE):
            self.add(rest[at : at + PIECE], reasoning=False)
            await checkpoint()
        if self._speech:
            self._speech.end()
        self._said = ["\n".join(lines).strip() for lines in self._speech.codes] if self._speech else []
        self._speech, self._streamed = None, []
        self._has_thought = False
        self._answered = event.text
        if event.finish in _CUT_OFF:
            self._note(_CUT_OFF[event.finish])
        if event.correction:
            self._note(f"not accepted as an answer: {event.correction}")

    async def answer(self, text: str) -> None:
        """The turn's answer, if it differs from the last reply."""
        rest = text.strip().removeprefix((self._answered or "").strip())
        if rest.strip():
            speech = MarkdownStream(self._transcript)
            # `text` may only begin like the reply.
            await speech.write_all(rest.lstrip() if rest.startswith("\n") else text)
        self._answered = None

    def _end_thinking(self) -> None:
        if self._thinking.begun:
            self.thought = self._thinking.text
            self._has_thought = True
            self._thinking.end()
            self._thinking = _Thinking(self._transcript)

    def _note(self, words: str) -> None:
        self._transcript.gap()
        self._transcript.write(Text(f"[{presentable_line(words)}]", "dim"))


class _Thinking:
    """Reasoning: counted, and shown on request."""

    def __init__(self, transcript: SpacedTranscript) -> None:
        self._transcript = transcript
        self._parts: list[str] = []
        self._since: float | None = None
        self._shown: LineSanitizer | None = None
        self._rest = self._tail = ""

    @property
    def begun(self) -> bool:
        return bool(self._parts)

    @property
    def text(self) -> str:
        return "".join(self._parts)

    def add(self, text: str, *, whole: bool, timed: bool = True) -> None:
        if not self._parts:
            self._since = time.monotonic() if timed else None
            self._transcript.gap()
            self._shown = LineSanitizer() if whole else None
        self._parts.append(text)
        self._tail = (self._tail + text)[-TAIL:]
        if self._shown:
            *lines, self._rest = (self._rest + text).split("\n")
            self._write(lines)

    def render_unfinished(self) -> Text | None:
        if not self._parts:
            return None
        if self._shown:
            return Text(self._shown.partial_line(self._rest[-TAIL:])[-1000:], "dim italic") if self._rest else None
        tail = presentable_line(" ".join(presentable(self._tail).split()))
        return Text(f"thinking: ...{tail[-160:]}", "dim italic")

    def end(self) -> None:
        if self._shown:
            self._write([self._rest])
            self._transcript.gap()
            return
        took = f" for {time.monotonic() - self._since:.0f} s" if self._since is not None else ""
        words = numerous("word", len(self.text.split()))
        self._transcript.write(Text(f"thought{took}, {words}: /thinking", "dim italic"))

    def _write(self, lines: list[str]) -> None:
        assert self._shown
        shown = [text for line in lines if (text := self._shown.line(line)) is not None]
        self._transcript.write(*(Text(line, "dim italic") for line in shown))
