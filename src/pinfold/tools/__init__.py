"""The registry of everything the agent can call."""

from pinfold.tools.arguments import Argument
from pinfold.tools.registry import PYTHON, SHOWN, Registry
from pinfold.tools.repair import BUILT_IN
from pinfold.tools.results import BadCall, BadTool, Result, ToolError, ToolFailed
from pinfold.tools.tool import AnyTool, Tool, as_tool, tool

__all__ = [
    "BUILT_IN",
    "PYTHON",
    "SHOWN",
    "AnyTool",
    "Argument",
    "BadCall",
    "BadTool",
    "Registry",
    "Result",
    "Tool",
    "ToolError",
    "ToolFailed",
    "as_tool",
    "tool",
]
