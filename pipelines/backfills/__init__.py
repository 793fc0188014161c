"""Windows of a feed's past, and their slices."""
