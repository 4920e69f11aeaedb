"""Serves a local model, a GGUF file or a Transformers folder, over an OpenAI-compatible API."""
