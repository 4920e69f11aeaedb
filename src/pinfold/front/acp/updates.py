"""Turns events into `session/update` notifications. A session that is loaded again looks as it did when it ran.

Code and output are in fences, so that an editor shows them and does not interpret them.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import Literal, TypeAlias

from msgspec import Struct

from pinfold import events
from pinfold.events import ActionFinished, ActionId, BlobId, CallTool, Delta, Entry, Json, RunCell
from pinfold.front.pages import CUT_OFF, describe_event
from pinfold.text import cap_text, first_line, presentable, presentable_line

Update: TypeAlias = dict[str, Json]
Language: TypeAlias = Literal["", "python", "sh", "diff"]
ReadBlob: TypeAlias = Callable[[BlobId], Awaitable[bytes]]
_TOOLS = {
    "execute": ("shell",),
    "read": ("read_file", "list_files", "list_directory"),
    "edit": ("edit_file", "write_file", "apply_patch"),
    "search": ("grep", "glob"),
    "fetch": ("fetch",),
    "think": ("plan", "task", "note"),
}
_KINDS: Mapping[str, str] = {tool: kind for kind, tools in _TOOLS.items() for tool in tools}
"""Kind of each tool; tools that are not listed are `other`."""
_STATUS = {"todo": "pending", "doing": "in_progress", "done": "completed"}
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
_TITLE = 120
_SHOWN = 20_000
"""Most characters shown of an output."""
_TAIL = 8_000
"""Most characters shown of the output of a running action."""
_FILE = 1 << 20
"""Most bytes of one side of a diff."""
_PICTURE_BYTES = 8 << 20
_MOST = 8
"""Most pictures of one action."""


class _Open(Struct, kw_only=True):
    """An action that has not ended."""

    title: str
    content: list[Json]
    """Content blocks that show what the action is about to do."""
    stream: str = ""
    stale: bool = False
    """True if some output was not sent yet."""


class Updates:
    """The notifications of one session, in order. Feed it every event from the first on."""

    def __init__(self, workspace: Path, blob: ReadBlob) -> None:
        self.workspace = workspace
        self._blob = blob
        self._open: dict[ActionId, _Open] = {}
        self._message = ""
        self._calls = 0
        self._streamed = self._thought = self._answered = ""
        self.mode: events.Mode = "auto"
        self.model = ""
        self.title = ""
        self.plan = events.Plan()
        self.finish: events.Finish = "stop"
        """How the last reply of a model ended."""
        self.context = 0
        """The model's window in tokens; 0 if unknown."""
        self._cost: float | None = 0.0
        self.ours: set[events.TurnId] = set()
        """Turns whose message the editor shows already."""

    @property
    def mode_id(self) -> str:
        return "plan" if self.plan.locked else self.mode

    async def render(self, item: Entry | Delta) -> list[Update]:
        match item:
            case events.TextDelta(text=text, reasoning=reasoning):
                return [self._text(text, reasoning=reasoning)]
            case events.OutputDelta(id=id_, text=text):
                if one := self._open.get(id_):
                    one.stream, one.stale = (one.stream + text)[-_TAIL:], True
                return []
            case Entry(event=event):
                return await self._render(event)

    def running_outputs(self) -> list[Update]:
        """Return the outputs with unsent parts; each replaces what was sent before. To be called at intervals."""
        stale = [(id_, one) for id_, one in self._open.items() if one.stale]
        for _, one in stale:
            one.stale = False
        return [
            _progress(id_, content=[*one.content, fenced(presentable(one.stream.rstrip("\n")))]) for id_, one in stale
        ]

    async def _render(self, event: events.Event) -> list[Update]:
        match event:
            case events.UserSpoke():
                return await self._on_user_spoke(event)
            case events.ModelCalled():
                self._calls += 1
                self._message, self._streamed, self._thought = f"{event.turn}.{self._calls}", "", ""
                return []
            case events.ModelReplied():
                return self._on_replied(event)
            case events.TurnEnded(text=text):
                rest = text.strip().removeprefix(self._answered.strip())
                self._answered = ""
                answer = [self._text(rest if rest.startswith("\n") else text)] if rest.strip() else []
                return [*answer, *self._notes(describe_event(event))]
            case events.TurnInterrupted():
                return [*self._end_open(), *self._notes(describe_event(event))]
            case events.TurnFailed(turn=turn, at_limit=at_limit):
                # The editor that sent the prompt gets the failure as the error of the request.
                is_told = turn in self.ours and not at_limit
                return [*self._end_open(), *self._notes("" if is_told else describe_event(event))]
            case events.ActionProposed() | events.ActionStarted() | ActionFinished():
                return await self._on_action(event)
            case _:
                return self._on_session(event)

    # Messages

    async def _on_user_spoke(self, event: events.UserSpoke) -> list[Update]:
        named: list[Update] = []
        if not self.title:
            self.title = first_line(presentable_line(event.text), 60)
            named = [{"sessionUpdate": "session_info_update", "title": self.title}]
        if event.turn in self.ours:
            return named
        blocks = [_text_block(event.text), *[await self._picture(one.mime, one.blob) for one in event.images]]
        return [
            *named,
            *({"sessionUpdate": "user_message_chunk", "messageId": event.turn, "content": one} for one in blocks),
        ]

    def _on_replied(self, event: events.ModelReplied) -> list[Update]:
        """Return the part of a reply that was not streamed, and its cost."""
        self.finish = event.finish
        said: list[Update] = []
        if event.reasoning and not self._thought:
            said.append(self._text(event.reasoning, reasoning=True))
        rest = event.text.rstrip() if event.text.rstrip() != self._streamed.rstrip() else ""
        if rest and self._streamed and rest.startswith(self._streamed):
            rest = rest[len(self._streamed) :]
        elif rest and self._streamed:
            said += self._notes("the whole reply:")
        if rest:
            said.append(self._text(rest))
        said += self._notes(CUT_OFF.get(event.finish, ""))
        said += self._notes(event.correction and f"not accepted as an answer: {event.correction}")
        self._answered, self._streamed = event.text, ""
        self._cost = None if self._cost is None or event.cost is None else self._cost + event.cost
        if self.context and event.usage.total:
            usage: Update = {"sessionUpdate": "usage_update", "used": event.usage.total, "size": self.context}
            said.append(usage | ({} if self._cost is None else {"cost": {"amount": self._cost, "currency": "USD"}}))
        return said

    def _text(self, text: str, *, reasoning: bool = False) -> Update:
        if reasoning:
            self._thought += text
        else:
            self._streamed += text
        kind = "agent_thought_chunk" if reasoning else "agent_message_chunk"
        about = {"messageId": f"{self._message}.thought" if reasoning else self._message} if self._message else {}
        return {"sessionUpdate": kind, **about, "content": _text_block(text)}

    def _notes(self, words: str) -> list[Update]:
        """Return a line that is not from the model, if there are any words for it."""
        return [message(f"\n\n> {presentable_line(words)}\n\n")] if words else []

    # Actions

    async def _on_action(
        self, event: events.ActionProposed | events.ActionStarted | events.ActionFinished
    ) -> list[Update]:
        match event:
            case events.ActionProposed():
                about = self.describe_call(event.action)
                self._open[event.id] = one = _Open(title=about["title"], content=self._intent(event.action))
                meta = {"_meta": {"pinfold": {"parentToolCallId": event.parent}}} if event.parent else {}
                call = {"toolCallId": event.id, "status": "pending", "content": one.content, **meta}
                return [{"sessionUpdate": "tool_call", **call, **about}]
            case events.ActionStarted(id=id_, instead_of=earlier):
                if (one := self._open.get(id_)) and earlier is not None:
                    one.stream = ""  # what it wrote before it was rolled back
                return [_progress(id_, status="in_progress")]
            case ActionFinished():
                return [await self._on_finished(event)]

    def describe_call(self, action: events.Action) -> Update:
        """Return title, kind, locations and input of a call."""
        match action:
            case RunCell(code=code):
                return {"title": _title(f"python: {first_line(code)}"), "kind": "execute", "rawInput": {"code": code}}
            case CallTool(tool=tool, given=given):
                name = tool.rpartition(".")[2]
                path = given.get("path")
                title = next((str(given[key]) for key in ("command", "path", "question", "url") if key in given), "")
                places: list[dict[str, Json]] = (
                    [{"path": self._path(path)}] if isinstance(path, str) and _KINDS.get(name) else []
                )
                line = given.get("start_line")
                if places and isinstance(line, int) and line >= 0:
                    places[0]["line"] = line
                found: Update = {"title": _title(f"{name} {title}"), "kind": _KINDS.get(name, "other")}
                return found | {"rawInput": action.args} | ({"locations": places} if places else {})

    def _intent(self, action: events.Action) -> list[Json]:
        """Return the whole code, command or edit."""
        match action:
            case RunCell(code=code):
                return [fenced(code.strip("\n"), "python")]
            case CallTool(given={"command": str(command)}):
                return [fenced(command.strip("\n"), "sh")]
            case CallTool(given={"path": str(path), "old": str(old), "new": str(new)}):
                return [{"type": "diff", "path": self._path(path), "oldText": old, "newText": new}]
            case _:
                return []

    async def _on_finished(self, event: ActionFinished) -> Update:
        one = self._open.pop(event.id, None)
        output = event.observation.strip("\n")
        changed = [diff for change in event.files if (diff := await self._diff(change))]
        # The diff of the whole file replaces that of the intended edit.
        content = [part for part in (one.content if one else ()) if not (changed and part["type"] == "diff")]
        if output:
            content.append(fenced(cap_text(presentable(output), _SHOWN)))
        content += changed
        content += [_wrapped(one) for one in await self._displays(event.displays)]
        if event.more_files:
            content.append(_wrapped(_text_block(f"and {event.more_files:,} other files")))
        places = [{"path": self._path(change.path)} for change in event.files]
        status = "completed" if event.outcome == "ok" else "failed"
        # Send the title again: an approval may have replaced it by a question.
        more = ({"locations": places} if places else {}) | ({"title": one.title} if one else {})
        return _progress(event.id, status=status, content=content, **more)

    def _end_open(self) -> list[Update]:
        """Report every open action as failed, because nothing runs any more."""
        ended = [_progress(id_, status="failed") for id_ in self._open]
        self._open.clear()
        return ended

    async def _diff(self, change: events.FileChange) -> Json | None:
        """Return a diff; None if a side is not text, or was too large to be kept."""
        sides = [await self._read(change.before), await self._read(change.after)]
        kept = (sides[0] is not None or change.how == "added") and (sides[1] is not None or change.how == "removed")
        if not kept or any(data is not None and (len(data) > _FILE or b"\0" in data) for data in sides):
            return None
        old, new = (None if data is None else data.decode("utf-8", "replace") for data in sides)
        return {"type": "diff", "path": self._path(change.path), "oldText": old, "newText": new or ""}

    async def _displays(self, displays: Iterable[events.DisplayRef]) -> list[Json]:
        mimes = [(mime, one.mime[mime]) for one in displays if (mime := next(filter(one.mime.get, _PICTURES), ""))]
        return [await self._picture(mime, blob) for mime, blob in mimes[:_MOST]]

    async def _picture(self, mime: str, blob: BlobId) -> Json:
        data = await self._read(blob)
        if data is None or len(data) > _PICTURE_BYTES:
            return _text_block("[a picture that is too large or no longer stored]")
        return {"type": "image", "mimeType": mime, "data": base64.b64encode(data).decode()}

    async def _read(self, blob: BlobId | None) -> bytes | None:
        try:
            return None if blob is None else await self._blob(blob)
        except events.PinfoldError:  # it is no longer stored
            return None

    def _path(self, path: str) -> str:
        return str(self.workspace / path)

    # The session

    def _on_session(self, event: events.Event) -> list[Update]:
        match event:
            case events.SessionOpened():
                self.mode, self.model = event.mode, event.model
                cut_off = [_progress(id_, status="failed") for id_ in self._open]  # their outcomes come later
                return [*cut_off, *self._notes(describe_event(event))]
            case events.SessionChanged():
                return self._on_changed(event)
            case _:
                return self._notes(describe_event(event))

    def _on_changed(self, event: events.SessionChanged) -> list[Update]:
        before = self.mode_id
        found: list[Update] = []
        self.mode, self.model = event.mode or self.mode, event.model or self.model
        if event.plan is not None:
            if event.plan.tasks != self.plan.tasks:
                found.append({"sessionUpdate": "plan", "entries": plan_entries(event.plan)})
            self.plan = event.plan
        if self.mode_id != before:
            found.append({"sessionUpdate": "current_mode_update", "currentModeId": self.mode_id})
        if event.title and event.title != self.title:
            self.title = event.title
            found.append({"sessionUpdate": "session_info_update", "title": presentable_line(event.title)})
        return found


def message(text: str) -> Update:
    return {"sessionUpdate": "agent_message_chunk", "content": _text_block(text)}


def plan_entries(plan: events.Plan) -> list[Json]:
    """Return the tasks of a plan, except those that were dropped."""
    return [
        {"content": one.text, "priority": "medium", "status": _STATUS[one.status]}
        for one in plan.tasks
        if one.status != "dropped"
    ]


def fence(text: str, language: Language = "") -> str:
    """Return Markdown for a block of code that nothing in the text can end."""
    marks = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", text)), 0)
    return f"{marks}{language}\n{text}\n{marks}"


def fenced(text: str, language: Language = "") -> Json:
    return _wrapped(_text_block(fence(text, language)))


def _wrapped(block: Json) -> Json:
    return {"type": "content", "content": block}


def _text_block(text: str) -> Json:
    return {"type": "text", "text": text}


def _title(text: str) -> str:
    return presentable_line(first_line(text, _TITLE))


def _progress(id_: ActionId, **fields: Json) -> Update:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id_, **fields}
