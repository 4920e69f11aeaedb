"""A local model for others: an OpenAI-compatible server over a GGUF file or a Transformers folder."""

from pinfold.model.local.serving.opening import ServeOptions, serve

__all__ = ["ServeOptions", "serve"]
