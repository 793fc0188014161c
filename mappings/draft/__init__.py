"""The first mapping file that `eventsync init` infers from a sample of rows, with the evidence of each guess."""
