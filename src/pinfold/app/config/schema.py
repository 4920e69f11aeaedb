"""The keys of the configuration: a struct for each section, with its defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias, cast

import msgspec
from msgspec.structs import fields

from pinfold.app.config.databases import DataConfig
from pinfold.events import Json, Mode, convert
from pinfold.sandbox import Limits, default_memory

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]
_SETTINGS = ("temperature", "top_p", "top_k", "max_tokens", "seed", "stop")


class ModelConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which model, and the settings sent with every request."""

    name: str = ""
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    max_tokens: int | None = None
    seed: int | None = None
    stop: tuple[str, ...] = ()
    extra: dict[str, Json] = {}
    context: int = 0
    """Context window in tokens, if it is not known or should be smaller; 0: as the model reports it."""
    protocol: Literal["auto", "native", "text"] = "auto"
    """How the model calls tools."""
    profile: Literal["auto", "full", "small"] = "auto"
    """How much the model can be told at once; `small` is for small models."""
    key_env: str = ""
    """Environment variable with the key of a model that is named by its address."""
    cache: bool = True
    """Whether replies to deterministic requests are remembered."""

    def settings(self) -> dict[str, Json]:
        given = {name: getattr(self, name) for name in _SETTINGS}
        return {**{name: value for name, value in given.items() if value not in (None, ())}, **self.extra}


class ModelsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Models besides the main one."""

    fallback: tuple[str, ...] = ()
    """Models to ask, in this order, when the main one cannot be reached."""
    escalate: str = ""
    """Model to ask when the main one is stuck in a loop."""
    aliases: dict[str, str] = {}


class ContextConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How a conversation is kept within the model's window."""

    compact: Literal["auto", "off"] = "auto"
    """Compact the conversation when it is nearly full, or only by /compact and when the model refuses it."""
    compact_at: float = 0.75
    """Share of the window that may be filled."""


class BudgetConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What may be spent beyond one turn; costs are in US dollars."""

    session_tokens: int | None = None
    session_cost: float | None = None
    day_tokens: int | None = None
    day_cost: float | None = None


class RunConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How far a turn may go."""

    mode: Mode = "auto"
    guards: Literal["off", "strict"] = "off"
    """Guard rails for code. They are not the security boundary: that is the sandbox."""
    imports: tuple[str, ...] | None = None
    """The only modules that code may import, with their submodules. A guard rail too; any module unless set."""
    max_steps: int = 20
    max_tokens: int | None = None
    max_cost: float | None = None
    max_seconds: float | None = None
    verify: str = ""
    """Checks an answer before it is given: "model", or a command that runs on a fork and exits with 0 to accept it. It
    may refuse one answer in each turn."""


class ToolsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which tools can be called, by names or patterns such as `web_*`."""

    enable: tuple[str, ...] | None = None
    """The only enabled tools; all unless set."""
    disable: tuple[str, ...] = ()
    """Disabled tools; a project's are added to the user's."""


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which hosts code and tools may reach."""

    allow: tuple[str, ...] = ()
    """Hosts reached without asking in the modes auto and full: `api.github.com`, `*.example.org`, `10.0.0.0/8`."""


class LimitsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits of a session besides those in `[sandbox]`."""

    disk_mb: int | None = None
    """How much the workspace and writable mounts may grow; the smaller of 10,000 and half the free disk unless set."""
    output_bytes: int | None = None
    """How much of one result the model sees; 10,000 characters unless set. The whole result is kept."""
    output_lines: int | None = None
    output_tokens: int | None = None
    """Counted as four bytes each."""


class SandboxConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where code runs."""

    provider: str = "auto"
    packages: tuple[str, ...] = ()
    """Packages added to the standard environment; a project's are added to the user's."""
    python: str = ""
    """Python that runs the cells instead of the environment's."""
    build: Literal["auto", "off"] = "auto"
    """Build the environment when code first needs it, or only by `pinfold env build`."""
    warm: Literal["auto", "off"] = "auto"
    """Whether the first command leaves a warm helper running, so that later ones start faster."""
    cell_s: float = 120.0
    shell_s: float = 30.0
    interrupt_grace_s: float = 0.4
    start_s: float = 30.0
    reply_s: float = 10.0
    memory_mb: int = msgspec.field(default_factory=lambda: default_memory() >> 20)
    """The smaller of 4096 and half of the machine's memory unless set."""
    processes: int = 256
    output_mb: int = 64
    file_mb: int = 64

    def limits(self, more: LimitsConfig = LimitsConfig()) -> Limits:
        sizes = {"memory": self.memory_mb, "output": self.output_mb, "file": self.file_mb, "disk": more.disk_mb}
        in_bytes = {f"{name}_bytes": None if size is None else size << 20 for name, size in sizes.items()}
        return convert({**msgspec.structs.asdict(self), **in_bytes}, Limits)


class SessionsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long sessions are kept; `pinfold sessions gc` removes those beyond the limits."""

    keep_days: float = 30.0
    quota_gb: float = 10.0


class MemoryConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Notes that outlive sessions."""

    embeddings: str = ""
    """Find notes by meaning too: `builtin` (offline; the extra `embeddings`), `openai:MODEL` or
    `http://HOST:PORT/v1#MODEL`. Notes and searches are sent to a server that is named here."""


class CheckpointConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Copies of the workspace besides those for undo."""

    git: bool = False
    """Commit to a side ref after each cell that changed files."""


PictureMode: TypeAlias = Literal["auto", "kitty", "iterm", "sixel", "blocks", "path"]


class ChatConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a session looks like in the terminal."""

    pictures: PictureMode = "auto"
    """How pictures are drawn; `path` only prints where they are, `auto` chooses by the terminal."""


class LogConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The operator log, for finding faults in Pinfold itself."""

    level: LogLevel = "warning"


class Config(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    model: ModelConfig = ModelConfig()
    models: ModelsConfig = ModelsConfig()
    context: ContextConfig = ContextConfig()
    budget: BudgetConfig = BudgetConfig()
    run: RunConfig = RunConfig()
    tools: ToolsConfig = ToolsConfig()
    network: NetworkConfig = NetworkConfig()
    sandbox: SandboxConfig = SandboxConfig()
    limits: LimitsConfig = LimitsConfig()
    sessions: SessionsConfig = SessionsConfig()
    memory: MemoryConfig = MemoryConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    chat: ChatConfig = ChatConfig()
    log: LogConfig = LogConfig()
    data: dict[str, DataConfig] = {}

    def get(self, dotted: str) -> Json:
        """Return the value of `section.key`."""
        section, key = dotted.split(".")
        return getattr(getattr(self, section), key)


NAMED: Mapping[str, type[msgspec.Struct]] = {"data": DataConfig}
"""Sections whose tables the user names: `[data.NAME]`."""
SECTIONS = {one.name: cast("type[msgspec.Struct]", NAMED.get(one.name) or one.type) for one in fields(Config)}
