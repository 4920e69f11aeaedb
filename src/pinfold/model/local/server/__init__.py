"""A local model for others: an OpenAI-compatible server over a GGUF file or a Transformers folder."""

from pinfold.model.local.server.model_server import ServeOptions, serve

__all__ = ["ServeOptions", "serve"]
