"""Tools declared in YAML files: a command in the sandbox, or a request to one server."""
