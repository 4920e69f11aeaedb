"""Models over HTTP: OpenAI's chat completions and Ollama's own API. The first request loads the HTTP library."""
