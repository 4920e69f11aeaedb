"""Programs that the host runs beside the cells: one request in, one reply out. The standard library only, but for `tables`."""
