"""Breaks sessions in every way a machine can, and says what is left of them. Shared by bench/ and tests/crash."""
