"""Builds a session's models from configuration: keys, folders, fallbacks, and their stored spending and failures."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from pinfold._version import __version__
from pinfold.app.config.schema import Config
from pinfold.app.errors import ConfigError
from pinfold.app.paths import cache_dir, data_dir, hold_file_lock, private_dir, state_dir
from pinfold.app.trust.secrets import Secrets
from pinfold.engine import Breaker, Circuit, Circuits, Model, Spent, model_key
from pinfold.events import Entry, Json, ModelFailed, ModelReplied, PinfoldError, Reply, Usage, convert, decode_json
from pinfold.model import (
    ANSWER_FORM,
    DIRECT,
    SERVICES,
    Access,
    ModelError,
    Profile,
    UnknownModel,
    full_name,
    key_variables,
    model_named,
    parse_model_name,
    profile_of,
)
from pinfold.sandbox.environment import EnvironmentFailed
from pinfold.sandbox.environment.uv import find_uv
from pinfold.text import keep_own_secret

logger = logging.getLogger(__name__)

_VARIABLES = ("_API_KEY", "_BASE_URL")
_ALSO = ("OLLAMA_HOST", "HF_TOKEN", "HF_ENDPOINT")


class CallOptions(Struct, frozen=True, kw_only=True):
    """How models are called, whichever is chosen."""

    fallback: tuple[str, ...] = ()
    escalate: str = ""
    aliases: Mapping[str, str] = field(default_factory=dict[str, str])
    keys: Mapping[str, str] = field(default_factory=dict[str, str])
    key_env: str = ""
    protocol: Literal["auto", "native", "text"] = "auto"
    profile: Literal["auto", "full", "small"] = "auto"
    cache: bool = True

    @classmethod
    def of(cls, config: Config, keys: Mapping[str, str] | None = None) -> CallOptions:
        """Build from configuration. A key comes from the environment, else `keys`, else the user's secrets."""
        known = keys_in({**load_stored_keys(), **(keys or {}), **os.environ}, config.model.key_env)
        return convert({**asdict(config.model), **asdict(config.models), "keys": known}, cls)

    def with_key(self, model: str, key: str) -> CallOptions:
        """Return options that give this key to the model's provider. Raises UnknownModel, ConfigError."""
        provider = parse_model_name(model, self.access()).provider
        key_env = self.key_env or ("PINFOLD_API_KEY" if provider == "url" else "")
        wanted = key_variables(provider, key_env)
        if not wanted:
            raise ConfigError(f"{model} takes no key; leave it out")
        keep_own_secret(key)
        return replace(self, keys={**self.keys, **dict.fromkeys(wanted, key)}, key_env=key_env)

    def with_stored_keys(self) -> CallOptions:
        """Return options with the keys that the user has stored since."""
        return replace(self, keys={**load_stored_keys(), **self.keys})

    def missing_key(self, model: str) -> ProviderKey | None:
        """Return the key that this model's provider needs if it is not set; else None. Raises UnknownModel."""
        provider = parse_model_name(model, self.access()).provider
        wanted = [key for key in provider_keys() if key.provider == provider]
        return wanted[0] if wanted and not any(self.keys.get(key.variable) for key in wanted) else None

    def access(self) -> Access:
        replies = cache_dir() / "replies" / __version__ if self.cache else None
        given = {name: getattr(self, name) for name in ("keys", "key_env", "aliases", "protocol", "profile")}
        return Access(**given, data=data_dir(), state=state_dir(), uv=uv_path, replies=replies, notice=logger.info)


def is_usable(model: str, calling: CallOptions) -> bool:
    """Return True if a session could use the model: it is known, installed, and its key is set. Sends no request."""
    from pinfold.model.chain import check_usable

    with contextlib.suppress(ModelError):
        check_usable(model, calling.access())
        return True
    return False


def uv_path() -> Path | None:
    """Return the path of uv, which installs the runtime of local models; None if it is not found."""
    with contextlib.suppress(EnvironmentFailed):
        return Path(find_uv())
    return None


def keys_in(environment: Mapping[str, str], also: str = "") -> dict[str, str]:
    """Return the variables with which models are reached; nothing else of the environment goes to them."""
    return {
        name: value
        for name, value in environment.items()
        if value and (name.endswith(_VARIABLES) or name in (*_ALSO, also))
    }


class NoModel:
    """Stands in for a model in sessions that only run the user's own cells, or whose model is unavailable."""

    def __init__(self, name: str, problem: PinfoldError) -> None:
        self.name = name
        self.problem = problem

    def stream(self, request: object) -> AsyncIterator[Reply]:  # noqa: ARG002
        raise self.problem


class SessionModels(Struct, frozen=True, kw_only=True):
    """The models of a session."""

    model: Model
    fallbacks: tuple[Model, ...] = ()
    escalate: Model | None = None
    profile: Profile = "full"
    notices: tuple[str, ...] = ()
    """Fallback and escalation models that are unavailable, and why."""

    async def close(self) -> None:
        for model in (self.model, *self.fallbacks, self.escalate):
            if close := getattr(model, "aclose", None):
                await close()


def select_models(
    wanted: str | Model | None, past: str, entries: Iterable[Entry], calling: CallOptions
) -> SessionModels:
    """Return the wanted model, or raise ModelError; if none is wanted, the past one, even if it is unavailable now."""
    access = calling.access()
    later = replace(access, warm=False)
    missing: list[str] = []

    def load_standby(name: str, key: str) -> Model | None:
        try:
            return model_named(name, access=later)
        except ModelError as error:
            missing.append(f"{name} ({key}) cannot be used: {error}")
            return None

    others = tuple(filter(None, (load_standby(name, "models.fallback") for name in calling.fallback)))
    stronger = load_standby(calling.escalate, "models.escalate") if calling.escalate else None
    if wanted is not None and not isinstance(wanted, str):
        return SessionModels(model=wanted, fallbacks=others, escalate=stronger, notices=tuple(missing))
    name = full_name(wanted or past)
    model: Model = NoModel(name, ConfigError("this session has no model yet; name one with --model"))
    if name:
        said = (entry.event for entry in entries)
        served = [
            event.request_id for event in said if isinstance(event, ModelReplied | ModelFailed) and event.model == name
        ]
        try:
            model = model_named(name, served, access)
        except ModelError as error:
            if wanted:
                raise
            model = NoModel(name, error)
    return SessionModels(
        model=model, fallbacks=others, escalate=stronger, profile=profile_of(name, access), notices=tuple(missing)
    )


def native_form(asked: SessionModels, calling: CallOptions, schema: Json) -> dict[str, Json]:
    """Return the setting with which a provider enforces the schema, if that works together with tools."""
    if schema is None or asked.fallbacks or asked.escalate:  # a fallback may not support it
        return {}
    with contextlib.suppress(UnknownModel):
        # Local servers that support either tools or a schema seldom support both at once.
        if parse_model_name(asked.model.name, calling.access()).provider == "openai":
            return {ANSWER_FORM: schema}
    return {}


class SpendingLedger:
    """What this user spent today, in all sessions: a line for each reply, in a file for each day (UTC)."""

    def __init__(self) -> None:
        self._folder = state_dir() / "spent"

    def add(self, usage: Usage, cost: float | None) -> None:
        line = msgspec.json.encode(Spent(tokens=usage.total, cost=cost)) + b"\n"
        # A failed count must not stop the turn that was just paid for.
        with contextlib.suppress(OSError, ConfigError):
            private_dir(self._folder)
            with self._today().open("ab") as file:
                file.write(line)

    def today(self) -> Spent:
        spent: list[Spent] = []
        with contextlib.suppress(OSError):
            for line in self._today().read_bytes().splitlines():
                with contextlib.suppress(msgspec.MsgspecError):
                    spent.append(decode_json(line, Spent))
        costs = [one.cost for one in spent if one.cost is not None]
        cost = sum(costs, 0.0) if len(costs) == len(spent) else None
        return Spent(tokens=sum(one.tokens for one in spent), cost=cost)

    def _today(self) -> Path:
        return self._folder / f"{datetime.now(UTC):%Y-%m-%d}.jsonl"


class _StoredCircuit(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    circuit: Circuit


class BreakerStore(Circuits):
    """The state of models' circuit breakers, for all processes of this user: a small file for each failing model."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = state_dir() / "paused"

    def breaker(self) -> Breaker:
        return Breaker(clock=time.time, circuits=self)

    def change(self, name: str, change: Callable[[Circuit], Circuit]) -> Circuit:
        """Change a circuit under a lock, so that only one process probes. If the disk fails, change it here only."""
        if not name.startswith(model_key("")):  # tools are not shared: two projects may have tools of the same name
            return super().change(name, change)
        path = self._folder / f"{hashlib.sha256(name.encode('utf-8', 'replace')).hexdigest()[:16]}.json"
        try:
            with hold_file_lock(self._folder / "paused"):
                known = _read(path)
                before = known.circuit if known else Circuit()
                changed = change(msgspec.structs.replace(before))
                if changed == Circuit():
                    path.unlink(missing_ok=True)
                elif changed != before:
                    path.write_bytes(msgspec.json.encode(_StoredCircuit(name=name, circuit=changed)))
                return changed
        except (OSError, ConfigError):
            return super().change(name, change)

    def all(self) -> dict[str, float]:
        """Return when each open breaker was opened."""
        found = [known for path in sorted(self._folder.glob("*.json")) if (known := _read(path))]
        return {known.name: known.circuit.opened_at for known in found if known.circuit.opened_at is not None}


def _read(path: Path) -> _StoredCircuit | None:
    with contextlib.suppress(OSError, msgspec.MsgspecError):
        return decode_json(path.read_bytes(), _StoredCircuit)
    return None


_HOSTS = {"anthropic": "api.anthropic.com", "google": "generativelanguage.googleapis.com", "cohere": "api.cohere.com"}
"""Hosts of providers that are reached through the extra `providers`."""


class ProviderKey(Struct, frozen=True, kw_only=True):
    provider: str
    variable: str
    host: str
    """The only host that the key is sent to."""


def provider_keys() -> Iterator[ProviderKey]:
    """Yield all possible keys; none of a provider whose address the environment changes."""
    for provider, service in SERVICES.items():
        if not (service.address and os.environ.get(service.address)):
            host = urlsplit(service.url).hostname or ""
            yield from (ProviderKey(provider=provider, variable=key, host=host) for key in service.keys)
    for provider, host in _HOSTS.items():
        yield from (ProviderKey(provider=provider, variable=key, host=host) for key in DIRECT[provider].keys)


def load_stored_keys() -> dict[str, str]:
    """Return the provider keys among the user's secrets, by variable."""
    found: dict[str, str] = {}
    with contextlib.suppress(ConfigError):  # `pinfold secret list` says what is wrong with it
        secrets = Secrets()
        kept = {one.name for one in secrets.all()}
        for key in provider_keys() if kept else ():
            if key.variable in kept and (value := secrets.get(key.variable, key.host)):
                found[key.variable] = value
    return found
