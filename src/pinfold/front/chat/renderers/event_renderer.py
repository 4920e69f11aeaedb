"""Renders a session: events and deltas in, lines of the transcript out.

The transcript depends only on durable events, so a reopened session looks the same. Deltas fill the live region, and
let a reply be written while it arrives.
"""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable

from anyio.lowlevel import checkpoint
from rich.console import RenderableType
from rich.text import Text

from pinfold import events
from pinfold.app import PictureMode
from pinfold.events import ModelReplied
from pinfold.front.chat.pictures import choose_protocol
from pinfold.front.chat.renderers.action_renderer import ActionRenderer
from pinfold.front.chat.renderers.markdown import MarkdownStream
from pinfold.front.chat.renderers.output import TAIL
from pinfold.front.chat.renderers.transcript import PIECE, HangingText, LineSanitizer, SpacedTranscript, Transcript
from pinfold.front.pages import CUT_OFF, describe_event
from pinfold.text import join_names, pluralize, presentable, presentable_line


class ReplyRenderer:
    def __init__(self, transcript: SpacedTranscript) -> None:
        self._transcript = transcript
        self._speech: MarkdownStream | None = None
        self._streamed: list[str] = []
        self._said: list[str] = []
        """The code blocks of the last reply."""
        self._answered: str | None = None
        self._has_thought = False
        """True if this reply's reasoning was already shown."""
        self._thinking = _Thinking(transcript)
        self.thinking = False
        self.thought = ""
        """The last reasoning in full."""

    def describe_activity(self) -> str:
        if self._speech:
            return "answering"
        return "thinking" if self._thinking.begun else ""

    def live(self) -> RenderableType | None:
        words = self._speech.render_unfinished() if self._speech else self._thinking.render_unfinished()
        return words or None

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
        """End the unfinished reply, if there is one: it was cut off, and another one may follow."""
        self._end_thinking()
        if self._speech:
            self._speech.end()
            self._note("that reply was cut off")
        self._speech, self._streamed = None, []
        self._said, self._has_thought = [], False

    async def finish(self, event: ModelReplied) -> None:
        """Write the part of the reply that was not streamed, and end the reply."""
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
        if event.finish in CUT_OFF:
            self._note(CUT_OFF[event.finish])
        if event.correction:
            self._note(f"not accepted as an answer: {event.correction}")

    async def answer(self, text: str) -> None:
        """Write the turn's answer if it differs from the last reply."""
        rest = text.strip().removeprefix((self._answered or "").strip())
        if rest.strip():
            speech = MarkdownStream(self._transcript)
            # Without a line break here, `text` merely begins like the reply, so write all of it.
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
    """The reasoning of one reply: counted in words, and shown on request."""

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
        words = pluralize("word", len(self.text.split()))
        self._transcript.write(Text(f"thought{took}, {words}: /thinking", "dim italic"))

    def _write(self, lines: list[str]) -> None:
        assert self._shown
        shown = [text for line in lines if (text := self._shown.line(line)) is not None]
        self._transcript.write(*(Text(line, "dim italic") for line in shown))


LIVE_S = 0.04
"""Minimum time between two updates of the live region."""
_NAMED = 12
_SAID_LINES = 20
_SAID_LETTERS = 4000


class EventRenderer:
    def __init__(
        self,
        transcript: Transcript,
        blob: Callable[[events.BlobId], Awaitable[bytes]],
        *,
        picture: PictureMode = "auto",
        displays: int = 0,
    ) -> None:
        """`displays`: the number of displays before the events to render."""
        self._out = SpacedTranscript(transcript)
        way = choose_protocol(picture, os.environ, colour=transcript.colour)
        self._replying = ReplyRenderer(self._out)
        self._acting = ActionRenderer(self._out, blob, way, displays)
        self._title = ""
        self._asked = ""
        self._failure = ""
        """Why the last request failed."""
        self._stale = False
        self._drawn_at = 0.0
        self._stands = False
        self.thinking = False
        """True if reasoning is shown."""

    def describe_activity(self) -> str:
        """Return what happens right now; empty if nothing does."""
        return (
            self._acting.describe_activity()
            or self._replying.describe_activity()
            or (f"asking {self._asked}" if self._asked else "")
        )

    def last_thought(self) -> str:
        """Return the last reasoning in full."""
        return presentable(self._replying.thought)

    async def render(self, item: events.Entry | events.Delta) -> None:
        self._replying.thinking = self.thinking
        match item:
            case events.TextDelta(text=text, reasoning=reasoning):
                self._asked = ""
                for at in range(0, len(text), PIECE):
                    if at:
                        await checkpoint()
                    self._replying.add(text[at : at + PIECE], reasoning=reasoning)
            case events.OutputDelta(id=id_, text=text):
                self._acting.add_output(id_, text)
            case events.Entry():
                await self._render(item)
        self._stale = True
        self.refresh()

    def refresh(self) -> None:
        """Update the live region, unless that was just done. Call it regularly, or the last delta may stay unseen."""
        now = time.monotonic()
        if not self._stale or now - self._drawn_at < LIVE_S:
            return
        self._stale = False
        thing = self._acting.live() or self._replying.live()
        if thing is not None or self._stands:
            self._drawn_at = now
            self._out.transcript.live(thing)
        self._stands = thing is not None

    async def _render(self, entry: events.Entry) -> None:
        match entry.event:
            case events.ModelCalled(model=model):
                self._replying.mark_cut_off()
                self._asked = presentable_line(model)
            case events.ModelReplied() as event:
                self._asked = ""
                await self._replying.finish(event)
            case events.ModelFailed() as event:
                self._on_model_failed(event)
            case events.ActionProposed() as event:
                action = event.action
                above = isinstance(action, events.RunCell) and self._replying.has_said(action.code)
                self._acting.on_proposed(event, above=above)
            case events.ApprovalRequested(id=id_):
                self._acting.on_approval_requested(id_)
            case events.ApprovalDecided() as event:
                self._acting.on_approval_decided(event)
            case events.ActionDenied(id=id_, reason=reason):
                self._acting.on_denied(id_, reason)
            case events.ActionStarted(id=id_, cell=cell):
                self._acting.on_started(id_, cell)
            case events.ActionFinished() as event:
                await self._acting.on_finished(event, entry.session)
                await checkpoint()
            case events.TurnEnded() | events.TurnInterrupted() | events.TurnFailed() | events.UserSpoke() as event:
                await self._turn(event)
            case _:
                self._session(entry.event)
        self._drawn_at = 0.0  # an event is shown at once

    def _on_model_failed(self, event: events.ModelFailed) -> None:
        self._asked = ""
        self._replying.mark_cut_off()
        self._line(describe_event(event, repeats=event.error == self._failure), "yellow")
        if event.retry_in_s is not None:
            self._failure = event.error

    async def _turn(
        self, event: events.TurnEnded | events.TurnInterrupted | events.TurnFailed | events.UserSpoke
    ) -> None:
        self._asked = self._failure = ""
        self._replying.mark_cut_off()
        if isinstance(event, events.UserSpoke):
            self._user(event.text, len(event.images))
            return
        self._acting.forget()
        if isinstance(event, events.TurnEnded):
            await self._replying.answer(event.text)
        self._line(describe_event(event), "red" if isinstance(event, events.TurnFailed) else "yellow")

    def _user(self, text: str, images: int) -> None:
        self._out.gap()
        words = Text(presentable(_head(text.rstrip())).expandtabs(4), "bold")
        if images:
            words.append(f"\n[{images} picture{'s' * (images > 1)}]", "dim")
        self._out.write(HangingText(words, "> ", "  ", "bold"))
        self._out.gap()

    def _session(self, event: events.Event) -> None:
        match event:
            case events.SessionOpened(restored=restored, replayed=replayed):
                self._acting.forget()
                named = {"restored": restored, "recomputed": replayed}
                back = [f"{how} {join_names(names, _NAMED)}" for how, names in named.items() if names]
                if back:
                    self._line(f"session reopened: {'; '.join(back)}", "dim")
                self._line(describe_event(event), "yellow")
            case events.SessionChanged():
                self._on_session_changed(event)
            case events.SessionRewound() | events.SessionForked() | events.ContextCompacted():
                self._line(describe_event(event), "cyan")
            case events.Checkpointed(number=number, commit=commit, message=message, restored=restored):
                if restored is not None:
                    self._line(f"files restored from checkpoint {restored}", "cyan")
                else:
                    self._line(f"checkpoint {number} ({commit[:10]}): {message}", "dim")
            case _:
                self._line(describe_event(event), "yellow")

    def _on_session_changed(self, event: events.SessionChanged) -> None:
        changed = {
            "model": event.model,
            "mode": event.mode,
            "checkpoints": {True: "on", False: "off", None: ""}[event.checkpoints],
            "revoked": join_names(event.revoked, _NAMED),
        }
        said = [f"{what}: {now}" for what, now in changed.items() if now]
        if event.title != self._title and not said:
            said.append(f"title: {event.title}")
        self._title = event.title
        self._line("; ".join(said), "dim")

    def _line(self, words: str, style: str) -> None:
        if words:
            self._out.gap()
            self._out.write(Text(presentable_line(words), style))


def _head(text: str) -> str:
    """Return the beginning of the user's message, which may include a pasted file."""
    lines = text.splitlines()
    kept = "\n".join(lines[:_SAID_LINES])[:_SAID_LETTERS]
    if len(lines) > _SAID_LINES:
        return f"{kept}\n[{len(lines) - _SAID_LINES:,} more lines]"
    return kept if len(kept) == len(text) else f"{kept}\n[{len(text) - len(kept):,} more characters]"
