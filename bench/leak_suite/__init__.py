"""A fully hostile model, a canary, and everything that could carry it out of the machine."""
