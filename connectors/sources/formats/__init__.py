"""How a file is cut into rows: one module per format, and what they share."""
