"""Key bindings, and the tokens that replace long pastes in the input."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from prompt_toolkit.application import get_app
from prompt_toolkit.filters import Condition, is_searching
from prompt_toolkit.key_binding import KeyBindings
from prompt_toolkit.key_binding.key_processor import KeyPressEvent
from prompt_toolkit.keys import Keys

from pinfold.front.chat.input_queue import LEAVE_HINT, ChoiceQuestion, InputQueue, KeyQuestion, WordsQuestion

if TYPE_CHECKING:
    from prompt_toolkit.buffer import Buffer


Press: TypeAlias = KeyPressEvent


def bindings(input_queue: InputQueue, pastes: Pastes) -> KeyBindings:
    keys = KeyBindings()
    _bind_editing(keys, input_queue, pastes)
    _bind_stopping(keys, input_queue, pastes)
    _bind_answering(keys, input_queue, pastes)
    return keys


def _bind_editing(keys: KeyBindings, input_queue: InputQueue, pastes: Pastes) -> None:
    @keys.add("enter", filter=~is_searching)
    def send(event: Press) -> None:
        buffer = event.current_buffer
        state = buffer.complete_state
        if state is not None and state.current_completion is not None:
            buffer.complete_state = None
            return
        if buffer.document.text_before_cursor.endswith("\\") and buffer.document.is_cursor_at_the_end:
            buffer.delete_before_cursor()
            buffer.insert_text("\n")
            return
        _submit(buffer, input_queue, pastes)

    @keys.add("escape", "enter", filter=~is_searching)
    def new_line(event: Press) -> None:
        event.current_buffer.insert_text("\n")

    @keys.add(Keys.BracketedPaste, filter=~is_searching)
    def paste(event: Press) -> None:
        input_queue.note_key()
        event.current_buffer.insert_text(pastes.collapse(event.data))

    @keys.add("backspace", filter=Condition(lambda: _token(pastes) > 0))
    def drop_paste(event: Press) -> None:
        event.current_buffer.delete_before_cursor(_token(pastes))

    @keys.add("up", filter=Condition(lambda: bool(input_queue.queued) and _is_empty()))
    def edit_queued(event: Press) -> None:
        text = input_queue.recall()
        if text is not None:
            event.current_buffer.text = pastes.collapse(text)
            event.current_buffer.cursor_position = len(event.current_buffer.text)

    @keys.add("c-d", filter=Condition(_is_empty))
    def leave(_: Press) -> None:
        input_queue.leave()

    @keys.add("c-x", "c-e", filter=~is_searching)
    def edit_elsewhere(event: Press) -> None:
        """Edit in $VISUAL or $EDITOR."""
        buffer = event.current_buffer
        buffer.text = pastes.expand(buffer.text)
        buffer.open_in_editor()

    @keys.add("c-l")
    def draw_again(event: Press) -> None:
        event.app.invalidate()


def _submit(buffer: Buffer, input_queue: InputQueue, pastes: Pastes) -> None:
    text = buffer.text
    if not text.strip():
        return
    input_queue.hint = ""
    buffer.reset()
    if kept := pastes.strip_tokens(text):
        buffer.history.append_string(kept)
    input_queue.enter(pastes.expand(text))


def _interrupt(buffer: Buffer, input_queue: InputQueue, pastes: Pastes) -> None:
    """Interrupt the turn. Queued lines return to the input, since they were meant for after the turn."""
    if waiting := input_queue.take_back():
        buffer.text = "\n".join([*map(pastes.collapse, waiting), *filter(None, [buffer.text])])
        buffer.cursor_position = len(buffer.text)
    input_queue.interrupted()


def _bind_stopping(keys: KeyBindings, input_queue: InputQueue, pastes: Pastes) -> None:
    @keys.add("c-c", filter=~is_searching)
    @keys.add(Keys.SIGINT)
    def stop(event: Press) -> None:
        if input_queue.leaving:
            input_queue.forced()
        elif input_queue.question is not None:
            input_queue.question.settle(None)
        elif input_queue.is_busy:
            _interrupt(event.current_buffer, input_queue, pastes)
        elif event.current_buffer.text:
            event.current_buffer.reset()
            input_queue.hint = ""
        elif input_queue.hint == LEAVE_HINT:
            input_queue.leave()
        else:
            input_queue.hint = LEAVE_HINT

    @keys.add("escape", filter=~is_searching)
    def stop_or_close(event: Press) -> None:
        if input_queue.question is not None:
            if input_queue.armed:
                input_queue.question.settle(None)
        elif event.current_buffer.complete_state is not None:
            event.current_buffer.cancel_completion()
        elif input_queue.is_busy:
            _interrupt(event.current_buffer, input_queue, pastes)


def _bind_answering(keys: KeyBindings, input_queue: InputQueue, pastes: Pastes) -> None:
    """Bind the keys that answer a question. While it has the keyboard, other keys do nothing."""
    single = Condition(lambda: input_queue.armed and isinstance(input_queue.question, KeyQuestion | ChoiceQuestion))
    choosing = Condition(lambda: input_queue.armed and isinstance(input_queue.question, ChoiceQuestion))
    worded = Condition(lambda: input_queue.armed and isinstance(input_queue.question, WordsQuestion))

    @keys.add(Keys.Any, filter=single)
    @keys.add("enter", filter=single)
    @keys.add("escape", "enter", filter=single)
    def press(event: Press) -> None:
        if len(event.data) == 1 and (words := input_queue.press(event.data)):
            event.current_buffer.insert_text(words)
        event.app.invalidate()

    @keys.add(Keys.BracketedPaste, filter=single)
    def paste(event: Press) -> None:
        event.current_buffer.insert_text(input_queue.paste(pastes.collapse(event.data)))

    def move(event: Press, by: int) -> None:
        if isinstance(input_queue.question, ChoiceQuestion):
            input_queue.question.move(by)
            event.app.invalidate()

    for name, by in (("up", -1), ("down", 1), ("s-tab", -1), ("tab", 1)):
        keys.add(name, filter=choosing)(partial(move, by=by))

    @keys.add("enter", filter=choosing | worded)
    def answer(event: Press) -> None:
        if input_queue.question is not None:
            input_queue.question.enter(event.current_buffer.text)


def _is_empty() -> bool:
    return not get_app().current_buffer.text


def _token(pastes: Pastes) -> int:
    return pastes.token_before(get_app().current_buffer.document.text_before_cursor)


_LINES = 5
_LETTERS = 1000
_TOKEN = re.compile(r"\[pasted [\d,]+ (?:lines|characters)(?: #\d+)?\]")


class Pastes:
    def __init__(self) -> None:
        self._kept: dict[str, str] = {}

    def collapse(self, text: str) -> str:
        """Return the token that replaces a long paste in the input; a short paste is returned unchanged."""
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        lines = text.count("\n") + (not text.endswith("\n"))
        if lines <= _LINES and len(text) <= _LETTERS:
            return text
        size = f"{lines:,} lines" if lines > 1 else f"{len(text):,} characters"
        token, number = f"[pasted {size}]", 1
        while self._kept.get(token, text) != text:
            number += 1
            token = f"[pasted {size} #{number}]"
        self._kept[token] = text
        return token

    def expand(self, text: str) -> str:
        return _TOKEN.sub(lambda match: self._kept.get(match.group(), match.group()), text)

    def strip_tokens(self, text: str) -> str:
        """Return the text without tokens, for the history."""
        return _TOKEN.sub(lambda match: "" if match.group() in self._kept else match.group(), text).strip()

    def token_before(self, text: str) -> int:
        """The length of the token at the end of `text`; 0 if there is none."""
        at = text.rfind("[pasted ")
        return len(text) - at if at >= 0 and text[at:] in self._kept else 0
