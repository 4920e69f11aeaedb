"""Skills in the open SKILL.md format, and functions that can become skills. Pure: reads no files, runs no code."""
