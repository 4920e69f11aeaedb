"""What the kernel offers and Python lacks: system calls, control groups, Landlock, mounts."""
