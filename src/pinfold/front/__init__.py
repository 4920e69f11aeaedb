"""Front ends. Each is only a subscriber: it submits commands and shows events."""
