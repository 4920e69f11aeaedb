"""The prompt and the live region above it. Drawn before the rest of Pinfold is loaded, so it must not import the rest.

No alternate screen, no mouse: the terminal scrolls, selects and copies as usual.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import struct
import sys
import termios
import time
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit.buffer import Buffer
from prompt_toolkit.enums import EditingMode
from prompt_toolkit.filters import Condition
from prompt_toolkit.formatted_text import ANSI, to_formatted_text
from prompt_toolkit.layout import ConditionalContainer, HSplit, Layout, Window
from prompt_toolkit.layout.controls import BufferControl, FormattedTextControl
from prompt_toolkit.layout.dimension import Dimension
from prompt_toolkit.layout.menus import CompletionsMenu
from prompt_toolkit.layout.processors import ConditionalProcessor, PasswordProcessor
from prompt_toolkit.output.color_depth import ColorDepth
from prompt_toolkit.search import stop_search
from prompt_toolkit.styles import Style
from prompt_toolkit.widgets import SearchToolbar

from pinfold.front.chat.completion import ChatCompleter, FileHistory, history_path
from pinfold.front.chat.input_queue import InputQueue
from pinfold.front.chat.keys import Pastes, bindings
from pinfold.front.chat.prompt_view import SPIN_S, PromptView, ThrottledApplication, merge_fragments, stdout_writer

if TYPE_CHECKING:
    from prompt_toolkit.data_structures import Size
    from prompt_toolkit.document import Document

    from pinfold.front.flags import Flags

_BEAT_S = 0.04
"""Minimum time between two writes to the terminal."""
_AT_ONCE = 1 << 16
"""Most characters written to the terminal in one beat."""
_INPUT_ROWS = 8
_ESCAPE_S = 0.05
_REFLOWS = {
    "ALACRITTY_WINDOW_ID",
    "GHOSTTY_RESOURCES_DIR",
    "ITERM_SESSION_ID",
    "KITTY_WINDOW_ID",
    "KONSOLE_VERSION",
    "TMUX",
    "VTE_VERSION",
    "WEZTERM_PANE",
    "WT_SESSION",
}
"""Environment variables of terminals that rewrap lines when their width changes."""
_STYLE = Style.from_dict(
    {
        "prompt": "bold ansigreen",
        "prompt.busy": "ansibrightblack",
        "dim": "ansibrightblack",
        "status": "ansibrightblack",
        "question": "bold",
        "key": "bold ansicyan",
        "completion-menu": "noreverse bg:default",
        "completion-menu.completion": "bg:default",
        "completion-menu.completion.current": "reverse",
        "completion-menu.meta.completion": "ansibrightblack bg:default",
        "completion-menu.meta.completion.current": "reverse",
        "scrollbar.background": "bg:default",
        "scrollbar.button": "bg:default",
    }
)


class Frame:
    """The conversation's `Terminal`, drawn with prompt_toolkit."""

    steered = True

    def __init__(self, input_queue: InputQueue) -> None:
        self.input_queue = input_queue
        self.completing = ChatCompleter()
        self.pastes = Pastes()
        self._writer = stdout_writer()
        self._buffer = Buffer(
            multiline=True,
            completer=self.completing,
            complete_while_typing=Condition(lambda: input_queue.question is None and len(self._buffer.text) < _AT_ONCE),
            history=FileHistory(history_path()),
            enable_history_search=False,
            on_text_insert=lambda _: input_queue.note_key(),
        )
        self._view = PromptView(input_queue, self.pastes, self._writer.get_size)
        self._app = self._application()
        self._writer.region, self._writer.wrapped = self._region, self._count_wrapped_rows
        self._writer.lost = input_queue.leave
        self._pending: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._beat_at = 0.0
        self._echoed_at = 0.0
        self._shrunk = False
        self._draft: Document | None = None
        self._drawn_at: Size | None = None
        input_queue.changed, input_queue.unread = self._request_redraw, _is_unread
        input_queue.arms, input_queue.disarms = self._take_keys, self._restore_draft

    def _application(self) -> ThrottledApplication:
        input_queue = self.input_queue
        above = Window(FormattedTextControl(self._view.above), dont_extend_height=True, wrap_lines=False)
        search = SearchToolbar(backward_search_prompt="search (Ctrl-R: next match, Enter: use it): ", ignore_case=True)
        entry = Window(
            BufferControl(
                self._buffer,
                focus_on_click=False,
                search_buffer_control=search.control,
                preview_search=True,
                input_processors=[ConditionalProcessor(PasswordProcessor(), Condition(self._is_hidden))],
            ),
            height=Dimension(min=1, max=_INPUT_ROWS),
            dont_extend_height=True,
            wrap_lines=True,
            get_line_prefix=self._view.prefix,
        )
        bottom = Window(FormattedTextControl(self._view.bottom), height=1, dont_extend_height=True)
        app = ThrottledApplication(
            layout=Layout(
                HSplit(
                    [
                        ConditionalContainer(above, Condition(lambda: bool(self._view.above()))),
                        entry,
                        search,
                        CompletionsMenu(max_height=6, extra_filter=Condition(lambda: input_queue.question is None)),
                        bottom,
                        Window(height=Dimension(min=0, preferred=0)),  # fills rows that became free
                    ]
                ),
                focused_element=entry,
            ),
            key_bindings=bindings(input_queue, self.pastes),
            style=_STYLE,
            include_default_pygments_style=False,
            editing_mode=EditingMode.EMACS,
            erase_when_done=True,
            color_depth=ColorDepth.DEPTH_1_BIT if os.environ.get("NO_COLOR") else None,
            output=self._writer,
            after_render=self._on_drawn,
        )
        app.key_processor.after_key_press += self._echo
        app.ttimeoutlen = _ESCAPE_S
        app.timeoutlen = _ESCAPE_S
        return app

    # Called by the conversation

    @property
    def columns(self) -> int:
        return self._writer.get_size().columns

    @property
    def rows(self) -> int:
        return self._writer.get_size().rows

    def append(self, text: str) -> None:
        self._pending.append(text)
        self._flush_soon()

    def set_live_lines(self, lines: list[str]) -> None:
        self._shrunk = self._shrunk or len(lines) < len(self._view.live)
        self._view.live = [merge_fragments(to_formatted_text(ANSI(line))) for line in lines]
        self._flush_soon()

    def set_completions(
        self, commands: Iterable[tuple[str, str]], arguments: Callable[[str, str], Iterable[str]], workspace: Path
    ) -> None:
        known = tuple(commands)
        self.completing.commands = lambda: known
        self.completing.arguments = arguments
        self.completing.workspace = workspace

    async def run(self) -> None:
        """Run until `close`."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, self.input_queue.leave)
        spinning = asyncio.create_task(self._spin())
        try:
            self._app.beat = self._flush_soon
            with contextlib.suppress(EOFError):
                await self._app.run_async(set_exception_handler=False)
        finally:
            spinning.cancel()
            self.input_queue.leave()
            self._flush_all()

    def close(self) -> None:
        self._flush_all()
        if self._app.is_running:
            self._app.exit()

    # Drawing

    async def _spin(self) -> None:
        while True:
            await asyncio.sleep(SPIN_S)
            if self.input_queue.is_busy:
                self._app.invalidate()

    def _request_redraw(self) -> None:
        if self.input_queue.question is not None:
            self._buffer.complete_state = None
        self._app.invalidate()

    def _flush_soon(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(max(0.0, self._beat_at + _BEAT_S - loop.time()), self._beat)

    def _beat(self) -> None:
        self._timer = None
        self._beat_at = asyncio.get_running_loop().time()
        text = "".join(self._pending)
        cut = text.rfind("\n", 0, _AT_ONCE) + 1 if len(text) > _AT_ONCE else len(text)
        self._pending = [text[cut:]] if cut and cut < len(text) else []
        self._put(text[:cut] if cut else text)
        if self._pending:
            self._flush_soon()

    def _put(self, text: str) -> None:
        app = self._app
        if not app.is_running or app.context is None:
            self._writer.write_raw(text.replace("\n", "\r\n"))
            self._writer.flush()
        elif app.is_away:
            if text:
                self._pending.insert(0, text)
                self._flush_soon()
        else:
            with self._writer.hold_output():
                if text or self._shrunk:
                    self._shrunk = False
                    app.renderer.erase()
                    self._writer.write_raw(text.replace("\n", "\r\n"))
                app.context.copy().run(self._draw)

    def _region(self) -> int:
        screen, drawn = self._app.renderer.last_rendered_screen, self._drawn_at
        return screen.height if screen is not None and drawn == self._writer.get_size() else 0

    def _count_wrapped_rows(self) -> int:
        """Rows above the cursor that rewrapping added, in terminals that rewrap."""
        screen, drawn, now = self._app.renderer.last_rendered_screen, self._drawn_at, self._writer.get_size()
        if screen is None or drawn is None or now.columns >= drawn.columns or not _REFLOWS & os.environ.keys():
            return 0
        cursor = screen.get_cursor_position(self._app.layout.current_window)
        lengths = (max(screen.data_buffer[row], default=0) + 1 for row in range(cursor.y))
        return sum((length - 1) // now.columns for length in lengths)

    def _draw(self) -> None:
        app = self._app
        app.render_counter += 1
        app.renderer.render(app, app.layout)
        app.layout.update_parents_relations()
        self._on_drawn()

    def _flush_all(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text, self._pending, self._view.live = "".join(self._pending), [], []
        if text:
            self._put(text)

    def _echo(self, _: object) -> None:
        """Draw right after a key press, without waiting for the next beat."""
        now = time.monotonic()
        if now - self._echoed_at > _BEAT_S / 4 and self._app.is_running and not self._app.is_away:
            self._echoed_at = now
            with self._writer.hold_output():
                self._draw()

    def _on_drawn(self, _: object = None) -> None:
        self._drawn_at = self._writer.get_size()
        if not self._pending:  # a question counts as shown only after the text above it
            self.input_queue.on_drawn()

    # The input

    def _is_hidden(self) -> bool:
        question = self.input_queue.question
        return self.input_queue.armed and question is not None and question.hidden

    def _take_keys(self) -> None:
        """Give the keyboard to a question, and keep the draft until it is answered."""
        if self._app.layout.is_searching and self._app.context is not None:
            self._app.context.copy().run(stop_search)
        self._draft = None if self.input_queue.is_early(self._buffer.text) else self._buffer.document
        self._buffer.reset()
        self._put("")

    def _restore_draft(self) -> None:
        if self._draft is not None:
            self._buffer.reset(self._draft)
            self._draft = None


def _is_unread() -> bool:
    """True if the terminal holds keys that were not read yet."""
    try:
        return struct.unpack("i", fcntl.ioctl(sys.stdin, termios.FIONREAD, b"\0" * 4))[0] > 0
    except (OSError, ValueError):
        return False


async def chat(given: Flags) -> int:
    """Run the chat and return the exit code."""
    input_queue = InputQueue(time.monotonic)
    frame = Frame(input_queue)
    input_queue.status = lambda _: "starting"
    drawn = asyncio.create_task(frame.run())
    await asyncio.sleep(0)  # let the prompt be drawn
    try:
        await asyncio.to_thread(import_module, "anyio._backends._asyncio")  # imported later, it would delay keys
        conversation = await asyncio.to_thread(import_module, "pinfold.front.chat.conversation")
        talking = asyncio.create_task(conversation.converse(input_queue, frame, given))
        input_queue.forced = talking.cancel
        await asyncio.wait([talking])
        return 130 if talking.cancelled() else talking.result()
    finally:
        frame.close()
        await drawn
