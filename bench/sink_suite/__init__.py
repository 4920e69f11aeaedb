"""Hostile outputs, secrets of every shape, ordinary lines, and the sinks they are sent through."""
