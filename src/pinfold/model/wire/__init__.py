"""Models over HTTP: chat completions as OpenAI has them, and Ollama's own. The library for it is loaded with the first request."""

from pinfold.model.wire.http import Patience, Wire
from pinfold.model.wire.ollama import OllamaModel
from pinfold.model.wire.openai import OpenAIModel

__all__ = ["OllamaModel", "OpenAIModel", "Patience", "Wire"]
