"""Kernel interface: system call filter, inotify, files never reached through a link, processes, sockets."""
