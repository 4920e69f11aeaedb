"""The providers namespaces, landlock and auto, how they are started and how their isolation is proven."""
