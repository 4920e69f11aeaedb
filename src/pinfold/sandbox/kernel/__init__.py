"""Kernel interfaces: system call filter, inotify, file access that never follows links, processes, sockets."""
