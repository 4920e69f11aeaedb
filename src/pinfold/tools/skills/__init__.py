"""Skills in the open SKILL.md format, and functions that can become skills. Pure: no file access, runs no skill code."""
