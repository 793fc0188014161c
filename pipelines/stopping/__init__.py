"""How a run is asked to stop, and when it hears it."""
