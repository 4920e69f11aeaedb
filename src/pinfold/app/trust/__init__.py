"""What of a workspace may be obeyed or sent: trust, secrets, grants, untrusted files."""
