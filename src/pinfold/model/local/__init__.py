"""Models that run on this machine: their weights, what runs them, and the servers others run here.

Nothing of weight is imported before it is used.
"""
