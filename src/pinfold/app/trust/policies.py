"""The user's own rules, from their configuration folder, and what policy says of a command."""

from __future__ import annotations

from typing import Any

from pinfold.app.errors import ConfigError
from pinfold.app.paths import config_dir
from pinfold.events import Mode
from pinfold.policy import NO_RULES, RuleError, Rules, explain, load_rules


def user_rules() -> Rules:
    """Raises ConfigError."""
    path = config_dir() / "rules.toml"
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        return NO_RULES
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 text: {error.reason} at byte {error.start}") from error
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    try:
        return load_rules(text)
    except RuleError as error:
        raise ConfigError(f"{path}: {error}") from error


def explain_command(command: str, mode: Mode = "ask") -> dict[str, Any]:
    """What policy would say of a shell command in a new session, and why. Raises ConfigError."""
    return explain(command, mode=mode, rules=user_rules())
