"""Numbers for monitors."""
