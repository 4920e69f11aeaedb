"""Sessions on disk: the store, locks, reading, and exports."""
