"""What uses sessions: Agent, turns followed to their end, sessions for clients of our servers, notebooks."""
