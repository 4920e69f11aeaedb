"""Shell commands, read into the simple commands they run."""

from pinfold.policy.shell.read import read_script
from pinfold.policy.shell.script import Command, Script, Word

__all__ = ["Command", "Script", "Word", "read_script"]
