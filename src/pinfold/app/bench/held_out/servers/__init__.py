"""Six servers that the public set does not have."""
