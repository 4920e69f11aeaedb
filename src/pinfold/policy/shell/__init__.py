"""Shell commands, parsed into the simple commands they run. Predicts and explains; the sandbox enforces."""

from functools import lru_cache

from pinfold.policy.shell.script import Command, Script, Word, base_name, plain_words, why_unread

__all__ = ["Command", "Script", "Word", "base_name", "read_script"]


@lru_cache(maxsize=512)
def read_script(command: str) -> Script:
    """Parse a shell command. Never raises: the script says what was not understood."""
    # The parser takes 0.1 s to load, and most sessions have no shell command.
    from pinfold.policy.shell.tree import Tree

    tree = Tree()
    if reason := why_unread(command):
        tree.stop(reason)
    else:
        tree.read(command, 0)
    return tree.script(plain_words(command))
