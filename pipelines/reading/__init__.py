"""How a run comes to its rows: from the start, onward, or by what differs from the last read."""
