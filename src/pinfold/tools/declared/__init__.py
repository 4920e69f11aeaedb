"""Tools that are declared in YAML files: a command in the sandbox, or a request to one server."""

from pinfold.tools.declared.tools import load_folder, load_yaml, yaml_tool
from pinfold.tools.ports import Ports

__all__ = ["Ports", "load_folder", "load_yaml", "yaml_tool"]
