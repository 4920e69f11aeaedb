"""The sections of `bench/undo.py`."""
