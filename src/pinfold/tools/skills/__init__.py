"""Skills in the open format of SKILL.md, and functions that can become one. Pure: reads no disk and runs no code of a skill."""
