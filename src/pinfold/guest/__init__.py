"""The program inside the sandbox. It imports nothing of ours and nobody imports it."""
