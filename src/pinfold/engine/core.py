"""What all parts of the engine share: the session's state, its log, the limits of a turn, and the circuit breaker."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial

import anyio
from msgspec import Struct, field
from msgspec.structs import replace

from pinfold.engine.context import TokenGauge
from pinfold.engine.fold import apply
from pinfold.engine.hooks import Hooks
from pinfold.engine.ports import ActionRunner, Form, Journal, Ledger, Model, Verifier
from pinfold.engine.state import State, Turn
from pinfold.events import BreakerState, Entry, Event, Json, PinfoldError

FORGET_S = 600.0
"""Failures further apart than this do not count as consecutive."""


class Circuit(Struct, kw_only=True):
    failures: int = 0
    failed_at: float = 0.0
    opened_at: float | None = None
    probed_at: float | None = None
    """When the current trial call began, if there is one."""


class Circuits:
    """Stores the state of each circuit in this process. A subclass can store it elsewhere."""

    def __init__(self) -> None:
        self._circuits: dict[str, Circuit] = {}

    def change(self, name: str, change: Callable[[Circuit], Circuit]) -> Circuit:
        """Store and return the changed circuit; an unknown circuit starts fresh."""
        self._circuits[name] = changed = change(self._circuits.get(name, Circuit()))
        return changed


class Breaker(Struct, kw_only=True):
    """A circuit breaker with one circuit for each model and tool, by name.

    After `threshold` failures in a row a circuit opens: calls are refused. After `cooldown_s` one trial call
    is let through; its success closes the circuit, its failure opens it again.
    """

    clock: Callable[[], float]
    threshold: int = 5
    cooldown_s: float = 30.0
    circuits: Circuits = field(default_factory=Circuits)

    def state(self, name: str) -> BreakerState:
        circuit = self.circuits.change(name, lambda circuit: circuit)
        if circuit.opened_at is None:
            return "closed"
        return "half-open" if self.clock() - circuit.opened_at >= self.cooldown_s else "open"

    def wait_s(self, name: str) -> float:
        """Return the seconds until a call is allowed; 0 if it is allowed now, and then it counts as the trial."""
        now, wait_s = self.clock(), 0.0

        def probe(circuit: Circuit) -> Circuit:
            nonlocal wait_s
            if circuit.opened_at is None:
                return circuit
            # The previous trial call may have ended without a report.
            since = max(circuit.opened_at, circuit.probed_at or circuit.opened_at)
            wait_s = max(0.0, since + self.cooldown_s - now)
            if not wait_s:
                circuit.probed_at = now
            return circuit

        self.circuits.change(name, probe)
        return wait_s

    def record_success(self, name: str) -> None:
        self.circuits.change(name, lambda _: Circuit())

    def record_failure(self, name: str) -> None:
        now = self.clock()

        def fail(circuit: Circuit) -> Circuit:
            failures = circuit.failures if now - circuit.failed_at < FORGET_S else 0
            circuit.failures, circuit.failed_at, circuit.probed_at = failures + 1, now, None
            if circuit.failures >= self.threshold or circuit.opened_at is not None:
                circuit.opened_at = now
            return circuit

        self.circuits.change(name, fail)

    def record_unknown(self, name: str) -> None:
        """The call ended without showing whether the circuit works; the next call may be the trial."""
        self.circuits.change(name, lambda circuit: replace(circuit, probed_at=None))


class Budget(Struct, frozen=True, kw_only=True):
    """Limits of one turn, of a session and of a day. None means no limit."""

    max_steps: int = 20
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    session_tokens: int | None = None
    session_cost: float | None = None
    day_tokens: int | None = None
    day_cost: float | None = None
    attempts: int = 4
    """How many times one model call is tried."""
    retry_base_s: float = 0.5
    side_by_side: int = 8
    """How many parallel-safe actions run concurrently."""


class ContextLimits(Struct, frozen=True, kw_only=True):
    """When the conversation is compacted."""

    auto: bool = True
    """False: only when the user asks for it, or the model refuses a request as too long."""
    compact_at: float = 0.75
    """Share of the model's window that may be filled."""
    window: int = 0
    """The model's window in tokens; 0: as the model reports it."""


class TurnStopped(PinfoldError):
    """The turn cannot go on; the message is for the user and, next turn, for the model."""

    def __init__(self, message: str, *, temporary: bool = False, at_limit: bool = False) -> None:
        super().__init__(message)
        self.temporary = temporary
        self.at_limit = at_limit


class CommandRefused(PinfoldError):
    """The command is not possible now; says why."""


class Choice(Struct, frozen=True, kw_only=True):
    """A model that a session can switch to."""

    model: Model
    prompt: str
    """Its system prompt."""


class Core(Struct, kw_only=True, dict=True):
    journal: Journal
    model: Model
    runner: ActionRunner
    fallbacks: Sequence[Model] = ()
    """Models to ask, in this order, when the model is unavailable."""
    escalate: Model | None = None
    """The model to ask when the first one repeats itself."""
    ledger: Ledger | None = None
    state: State = field(default_factory=State)
    hooks: Hooks = field(default_factory=Hooks)
    budget: Budget = field(default_factory=Budget)
    context: ContextLimits = field(default_factory=ContextLimits)
    gauge: TokenGauge = field(default_factory=TokenGauge)
    settings: Mapping[str, Json] = field(default_factory=dict[str, Json])
    breaker: Breaker = field(default_factory=lambda: Breaker(clock=time.monotonic))
    unattended: bool = True
    """True if no user can be asked: actions that need a decision are denied, on record."""
    form: Form | None = None
    """The required form of every answer; None: free text."""
    verifier: Verifier | None = None
    """Checks an answer before the turn ends; it can refuse one answer per turn."""
    choose: Callable[[str], Choice] | None = None
    """Returns the model with a given name. Raises PinfoldError."""
    destination: Callable[[str], str] = str
    """Returns where requests to a model, given by name, go; empty if they stay on this machine."""
    approval_s: float = 900.0
    """How long an approval holds."""
    clock: Callable[[], datetime] = partial(datetime.now, UTC)

    def __post_init__(self) -> None:
        self._change: anyio.Event | None = None
        """Not None while a task waits for a change."""
        self.journal.follow(self._follow)

    @property
    def window(self) -> int:
        """The model's window in tokens; 0 if unknown."""
        return self.context.window or self.gauge.window or getattr(self.model, "context", None) or 0

    def fault_of(self, answer: str) -> str:
        """Return what is wrong with an answer; empty if it is acceptable."""
        return self.form.fault(answer) if self.form else ""

    def form_fault(self, answer: str) -> str:
        """Return the correction, once per turn, for an answer not in the form the prompt asks for; else empty."""
        turn = self.state.turn
        if turn is None or self.form is not None:
            return ""
        from pinfold.text.answer_forms import LACKS, asked_form

        form = asked_form(turn.said)
        told = any(LACKS in message.text for message in turn.messages[1:])
        return form.fault(answer) if form and not told else ""

    def printed_answer(self, turn: Turn) -> str | None:
        """Return the last code's output if that is exactly the answer asked for and nothing else is asked for."""
        if not turn.output:
            return None
        from pinfold.text.answer_forms import asked_form, stdout_of, wants_more

        form = self.form or asked_form(turn.said)
        if form is None or wants_more(turn.said):
            return None
        return form.find_printed(stdout_of(turn.output, turn.notices))

    async def record(self, *events: Event) -> None:
        """Append events. When this returns, they are on disk and in the state."""
        await self.journal.append(*events)

    def _follow(self, entry: Entry) -> None:
        self.state = apply(self.state, entry)
        self.touch()

    def touch(self) -> None:
        """Wake up the tasks that wait for a change."""
        if self._change is not None:
            self._change.set()
            self._change = None

    async def wait_for_change(self) -> None:
        """Wait for the next event, or the end of a command."""
        self._change = self._change or anyio.Event()
        await self._change.wait()
