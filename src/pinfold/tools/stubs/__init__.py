"""Tools as Python modules, which the session imports: `from servers.github import list_issues`."""
