"""The providers namespaces, landlock, auto and unsafe-local, and how they start and prove themselves."""
