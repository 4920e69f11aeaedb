"""Tool calls for models that have none: told in the prompt, written as text, read out of the reply."""

from pinfold.model.protocol.reading import Reading, read
from pinfold.model.protocol.spoken import InText, When
from pinfold.model.protocol.telling import Style, told

__all__ = [
    "InText",
    "Reading",
    "Style",
    "When",
    "read",
    "told",
]
