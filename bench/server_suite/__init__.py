"""What `bench/server.py` measures of a running `pinfold serve`."""
