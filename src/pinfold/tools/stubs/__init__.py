"""Tools as modules of Python: what `from servers.github import list_issues` imports in the session."""
