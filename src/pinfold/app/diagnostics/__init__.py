"""What `pinfold doctor` looks at: each module finds out about one side of an installation, and changes nothing."""
