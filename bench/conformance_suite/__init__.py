"""What `bench/conformance.py` is made of."""
