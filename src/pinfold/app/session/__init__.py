"""A live session put together: sandbox, tools, policy, approvals and checkpoints behind the engine's ports."""
