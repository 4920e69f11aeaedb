"""The agent inside editors: the Agent Client Protocol over standard streams."""
