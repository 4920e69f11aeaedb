"""Why an environment cannot be had. One line: what is wrong and what to do."""

from pinfold.sandbox.contract import SandboxUnavailable


class EnvironmentFailed(SandboxUnavailable):
    """It cannot be built, added to, or used."""
