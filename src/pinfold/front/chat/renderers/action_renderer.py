"""Shows actions: the code when they start, output while they run, results when they end."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from msgspec import Struct, field
from rich.console import Group, RenderableType
from rich.text import Text

from pinfold import events
from pinfold.app.session.agent_tools import START, runs_in
from pinfold.events import ActionId, BlobId, CallTool, Json, SessionId
from pinfold.front.chat.pictures import Way
from pinfold.front.chat.renderers import code, output
from pinfold.front.chat.renderers.code import elide_lines, highlight_code, language_of
from pinfold.front.chat.renderers.output import INDENT
from pinfold.front.chat.renderers.transcript import SpacedTranscript, cut, with_gutter
from pinfold.text import presentable, presentable_line

CODE_LINES = 120
"""Lines of a cell that are shown; a longer one is cut in the middle."""
_WRITTEN_LINES = 12
"""Lines of a new file that are shown."""
_ARGUMENTS = 160


def render_action(action: events.Action, cell: int | None, *, above: bool = False) -> list[RenderableType]:
    """Render an action's code or call. `cell`: its number, if any. `above`: the reply above already shows the code."""
    match action:
        case events.RunCell() if above:
            return [_words("  Ran the code above" if cell is None else f"  Ran as cell {cell}", "dim italic")]
        case events.RunCell(code=code):
            return _beside_all(elide_lines(highlight_code(code.strip("\n"), "python"), CODE_LINES), cell)
        case CallTool(tool="shell", given={"command": str(command), **rest}):
            where = " on the host" if rest.get("where") == "host" else ""
            lines = elide_lines(highlight_code(command.strip("\n"), "bash"), CODE_LINES)
            lines[0] = _words(f"${where} ", "bold").append_text(lines[0])
            return _beside_all(lines, cell)
        case CallTool(tool=tool, given=given):
            return [_beside(_title(tool, given), cell), *_render_new_file(tool, given)]


_LONG = {"edit_file": ("old", "new"), "write_file": ("content",), "apply_patch": ("patch",)}
"""Arguments that are not shown in the title."""


def _title(tool: str, given: Mapping[str, Json]) -> Text:
    hidden = _LONG.get(tool, ())
    rest = {name: value for name, value in given.items() if name not in hidden}
    if set(rest) == {"path"} or tool in ("edit_file", "write_file"):
        arguments = str(rest.get("path", ""))
    else:
        arguments = ", ".join(f"{name}={_value(value)}" for name, value in rest.items())
    text = _words(presentable_line(tool), "bold")
    return text.append(f" {cut(presentable_line(arguments), _ARGUMENTS)}") if arguments else text


def _render_new_file(tool: str, given: Mapping[str, Json]) -> list[RenderableType]:
    """Render a new file's content. An edit is shown when it is done, or in its approval request."""
    match tool, given:
        case "write_file", {"path": str(path), "content": str(content)}:
            lines = elide_lines(highlight_code(content.rstrip("\n"), language_of(path)), _WRITTEN_LINES)
            return [with_gutter(line, "    + ", "green") for line in lines]
        case _:
            return []


def _value(value: Json) -> str:
    try:
        return events.plain_json(value)
    except events.NotPlain:
        return "?"


def _beside_all(lines: list[Text], cell: int | None) -> list[RenderableType]:
    return [_beside(line, cell if place == 0 else None) for place, line in enumerate(lines)]


def _beside(line: Text, cell: int | None) -> RenderableType:
    number = "" if cell is None else str(cell)
    return with_gutter(line, "    │ ", "dim", f"{number:>3} │ ")


def _words(text: str, style: str) -> Text:
    return Text().append(presentable(text), style)


_LIVE_ROWS = 5
_LIVE_CALLS = 3
_DIFF_LINES = 24
_DIFFS = 3
_EDITS = ("edit_file", "write_file", "apply_patch")
_SIGNS = {"added": ("A", "green"), "changed": ("M", "yellow"), "removed": ("D", "red")}


class _Calls(Struct):
    """Calls of one tool by one cell."""

    count: int = 0
    failed: int = 0
    denied: int = 0
    reason: str = ""

    @property
    def words(self) -> str:
        more = [f"{self.failed:,} failed"] * bool(self.failed) + [f"{self.denied:,} not run"] * bool(self.denied)
        why = f": {self.reason}" if self.reason else ""
        times = f" x {self.count:,}" if self.count > 1 else ""
        return f"{times} ({', '.join(more)}{why})" if more else times


class _Open(Struct):
    action: events.Action
    parent: ActionId | None = None
    above: bool = False
    cell: int | None = None
    is_shown: bool = False
    runs: bool = False
    waits: bool = False
    stream: output.Stream = field(default_factory=output.Stream)
    calls: dict[str, _Calls] = {}
    agents: dict[str, str] = {}
    """Status of each sub-agent that the action started, by name."""

    @property
    def asks(self) -> bool:
        """True if the action is a question to the user, which is shown as a question."""
        return isinstance(self.action, CallTool) and self.action.tool == "ask_user"

    @property
    def starts_agents(self) -> bool:
        return isinstance(self.action, CallTool) and self.action.tool == START


def _render_agents(agents: Mapping[str, str]) -> list[RenderableType]:
    """Return a line for each sub-agent; /agents NAME shows all that it did."""
    return [
        Text.assemble(INDENT, ("◇ ", "cyan"), (name, "bold"), (f"  {how}", "dim"), no_wrap=True, overflow="ellipsis")
        for name, how in agents.items()
    ]


class ActionRenderer:
    def __init__(
        self, transcript: SpacedTranscript, blob: Callable[[BlobId], Awaitable[bytes]], way: Way, displays: int = 0
    ) -> None:
        self._transcript = transcript
        self._displays = output.Displays(transcript, blob, way, displays)
        self._open: dict[ActionId, _Open] = {}

    def describe_activity(self) -> str:
        if any(one.waits for one in self._open.values()):
            return "waiting for you"
        for one in reversed(self._open.values()):
            if one.runs and one.parent is None:
                cell = "a cell" if one.cell is None else f"cell {one.cell}"
                return f"running {presentable_line(one.action.tool) if isinstance(one.action, CallTool) else cell}"
        return ""

    def live(self) -> RenderableType | None:
        for one in reversed(self._open.values()):
            if one.parent is not None or not (one.calls or one.stream):
                continue
            calls = list(one.calls.items())[-_LIVE_CALLS:]
            things: list[RenderableType] = [
                Text(f"{INDENT}{tool}{calls.words}", "dim", no_wrap=True) for tool, calls in calls if tool != START
            ]
            things += _render_agents(one.agents)
            if one.stream:
                things.append(one.stream.last(max(1, _LIVE_ROWS - len(things)), self._transcript.width))
            return Group(*things) if things else None
        return None

    def forget(self) -> None:
        """Forget all open actions, since nothing runs any more."""
        self._open.clear()

    def on_proposed(self, event: events.ActionProposed, *, above: bool) -> None:
        self._open[event.id] = _Open(action=event.action, parent=event.parent, above=above)
        if isinstance(event.action, CallTool) and (calls := self._calls(event.id)):
            calls.count += 1

    def on_approval_requested(self, id_: ActionId) -> None:
        if one := self._open.get(id_):
            one.waits = True
            one.is_shown = one.is_shown or one.asks  # the question itself is shown
            self._show(one)

    def on_approval_decided(self, event: events.ApprovalDecided) -> None:
        one = self._open.get(event.id)
        if one:
            one.waits = False
        if one and one.asks and event.verdict == "allow":
            self._note(f"answered: {presentable_line(event.words)}")
            return
        how = {"once": "", "session": " for this session", "always": " always"}[event.scope]
        words = f": {presentable_line(event.words)}" if event.words else ""
        self._note(f"{'allowed' if event.verdict == 'allow' else 'denied'}{how}{words}")

    def on_denied(self, id_: ActionId, reason: str) -> None:
        if calls := self._calls(id_):
            calls.denied += 1
            calls.reason = presentable_line(reason)
            return
        if one := self._open.get(id_):
            self._show(one)
            one.waits = False
        self._note(f"not run: {presentable_line(reason)}", "yellow")

    def on_started(self, id_: ActionId, cell: int | None) -> None:
        if one := self._open.get(id_):
            one.runs, one.waits = True, False
            one.cell = cell if one.parent is None else None
            self._show(one)

    def add_output(self, id_: ActionId, text: str) -> None:
        one = self._open.get(id_)
        if one and one.parent is None:  # output of a tool goes to the cell that called it
            one.stream.add(text)
        elif one and one.starts_agents and (above := self._above(one)):
            for line in presentable(text).splitlines():
                name, _, how = line.partition(": ")
                above.agents[name] = how

    async def on_finished(self, event: events.ActionFinished, session: SessionId) -> None:
        calls, one = self._calls(event.id), self._open.pop(event.id, None)
        if one and one.parent:
            if one.starts_agents and (above := self._above(one)):
                results = [presentable_line(str(run["line"])).partition(": ") for run in runs_in(event.observation)]
                above.agents.update({name: how for name, _, how in results})
            if calls and event.outcome not in ("ok", "denied"):
                calls.failed += 1
            for form in await self._displays.forms(event.displays):
                await self._displays.show(form, session)
            return
        if one:
            self._show(one)
        if event.outcome == "denied" and not event.error:
            return  # the reason was shown
        if one and one.asks and one.is_shown and event.outcome == "ok":
            return  # the answer was shown
        is_cell = one is None or isinstance(one.action, events.RunCell)
        if one and isinstance(one.action, CallTool) and one.action.tool in _EDITS and event.outcome == "ok":
            if not event.files:  # else the diffs of the files are shown
                self._transcript.write(*code.render_diff(event.observation))
        else:
            await self._result(event, session, one, is_cell=is_cell)
        await self._files(event)
        self._transcript.write(output.render_status(event, "" if is_cell else output.exit_code(event)))
        self._transcript.gap()

    async def _result(
        self, event: events.ActionFinished, session: SessionId, one: _Open | None, *, is_cell: bool
    ) -> None:
        if one and one.calls:
            shown = [(tool, calls) for tool, calls in one.calls.items() if tool != START or not one.agents]
            self._transcript.write(*(Text(f"{INDENT}{tool}{calls.words}", "dim") for tool, calls in shown))
            self._transcript.write(*_render_agents(one.agents))
        whole = await self._displays.read(event.blobs[0] if event.blobs else None)
        if whole is None:
            whole = event.observation.encode("utf-8", "replace")
        if not is_cell and (code := output.exit_code(event)):  # shown in the status line
            whole = whole.rstrip(b"\n").removesuffix(f"[{code}]".encode())
        forms = await self._displays.forms(event.displays)
        parts = output.split_observation(event, whole, [form.plain for form in forms])
        width, bounds = self._transcript.width, output.CELL if is_cell else output.TOOL
        way = f"/output {one.cell}" if one and one.cell and is_cell else "/output"
        self._transcript.write(*output.render_excerpt(parts.stdout, bounds, width, way=way))
        self._transcript.write(*output.render_excerpt(parts.stderr, bounds, width, way=way, style="red"))
        for form in forms:
            await self._displays.show(form, session)
        if not any(form.plain.decode("utf-8", "replace") == parts.value for form in forms):
            value = parts.value.encode("utf-8", "replace")
            self._transcript.write(*output.render_excerpt(value, bounds, width, way=way))
        if parts.error:
            self._transcript.write(*output.traceback(parts.error))
        for note in parts.notes:
            if not (event.rolled_back and "rolled back" in note):
                self._note(note)

    async def _files(self, event: events.ActionFinished) -> None:
        for number, change in enumerate(event.files):
            before, after = [await self._displays.read(blob) for blob in (change.before, change.after)]
            diff = None
            if before is not None or after is not None:
                diff = code.compute_diff(*(data.decode("utf-8", "replace") for data in (before or b"", after or b"")))
            sign, style = _SIGNS[change.how]
            size = f"  {code.describe_size(diff)}" if diff else ""
            self._transcript.write(
                Text.assemble(INDENT, (f"{sign} ", style), presentable_line(change.path), (size, "dim"))
            )
            if diff and number < _DIFFS and diff.count("\n") < _DIFF_LINES and change.how == "changed":
                self._transcript.write(*code.render_diff(diff, indent="      "))
        if event.more_files:
            self._note(f"and {event.more_files:,} other files")

    def _calls(self, id_: ActionId) -> _Calls | None:
        """Return the counts of this tool's calls by the calling cell; None if no cell called it."""
        one = self._open.get(id_)
        above = self._above(one) if one else None
        if one is None or above is None or not isinstance(one.action, CallTool):
            return None
        return above.calls.setdefault(presentable_line(one.action.tool), _Calls())

    def _above(self, one: _Open) -> _Open | None:
        """Return the cell that called the action, if it still runs."""
        return self._open.get(one.parent) if one.parent else None

    def _show(self, one: _Open) -> None:
        if not one.is_shown and one.parent is None:
            one.is_shown = True
            self._transcript.gap()
            with self._transcript.together():
                self._transcript.write(*render_action(one.action, one.cell, above=one.above))

    def _note(self, words: str, style: str = "dim") -> None:
        self._transcript.write(Text(f"{INDENT}[{presentable_line(words).strip('[]')}]", style))
