"""The history of a workspace's files: what each cell changed, and the way back and forth. See README.md."""
