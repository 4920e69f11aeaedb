"""Programs that the host runs besides cells: one request in, one reply out. Only `tables` needs more than stdlib."""
