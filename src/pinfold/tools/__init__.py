"""One registry of everything the agent can call."""

from pinfold.tools.errors import BadCall, BadTool, ToolError, ToolFailed
from pinfold.tools.registry import PYTHON, Registry
from pinfold.tools.tool import Tool, as_tool, tool

__all__ = [
    "PYTHON",
    "BadCall",
    "BadTool",
    "Registry",
    "Tool",
    "ToolError",
    "ToolFailed",
    "as_tool",
    "tool",
]
