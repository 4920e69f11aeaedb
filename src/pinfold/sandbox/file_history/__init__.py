"""The history of a workspace's files: what each cell changed, and how to restore any state. See README.md."""
