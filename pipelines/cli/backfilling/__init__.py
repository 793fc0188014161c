"""The command `backfill`: a window of a feed's past, slice by slice."""
