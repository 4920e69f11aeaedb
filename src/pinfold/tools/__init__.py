"""One registry of everything the agent can call."""

from pinfold.events import Reach
from pinfold.tools.arguments import Argument
from pinfold.tools.registry import PYTHON, SHOWN, Registry
from pinfold.tools.repair import BUILT_IN
from pinfold.tools.results import BadCall, BadTool, Result, ToolError, ToolFailed
from pinfold.tools.tool import AnyTool, Tool, Trust, as_tool, tool

__all__ = [
    "BUILT_IN",
    "PYTHON",
    "SHOWN",
    "AnyTool",
    "Argument",
    "BadCall",
    "BadTool",
    "Reach",
    "Registry",
    "Result",
    "Tool",
    "ToolError",
    "ToolFailed",
    "Trust",
    "as_tool",
    "tool",
]
