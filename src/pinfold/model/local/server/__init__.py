"""A local model for others: an OpenAI-compatible server over a GGUF file or a Transformers folder."""
