"""Front ends. Each one only submits commands and shows events."""
