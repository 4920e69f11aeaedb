"""The program inside the sandbox. It imports nothing else of the project, and nothing else imports it."""
