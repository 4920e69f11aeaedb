"""Models that run on this machine: their weights, their runtime, and other model servers found here.

Heavy modules are imported only when they are used.
"""
