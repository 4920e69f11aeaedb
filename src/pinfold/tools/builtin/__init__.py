"""The tools that come with Pinfold."""
