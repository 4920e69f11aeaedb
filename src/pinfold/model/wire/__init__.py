"""Models over HTTP: chat completions as OpenAI has them, and Ollama's own. The library for it is loaded with the first request."""
