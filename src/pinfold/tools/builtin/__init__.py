"""The tools that come with Pinfold."""

from pinfold.tools.builtin.files import Measured, file_tools, measure, preview

__all__ = ["Measured", "file_tools", "measure", "preview"]
