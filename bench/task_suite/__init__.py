"""Small tasks as users ask them, the checkers that judge what came of them, and the agents that try."""
