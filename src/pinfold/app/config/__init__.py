"""Configuration: its layers, changing one key, and the databases it names."""
