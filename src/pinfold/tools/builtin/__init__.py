"""Tools that come with the product."""

from pinfold.tools.builtin.files import Measured, file_tools, list_directory, measure, preview

__all__ = ["Measured", "file_tools", "list_directory", "measure", "preview"]
