"""What `bench/sandbox.py`, `bench/bombs.py` and `bench/cycles.py` are made of."""
