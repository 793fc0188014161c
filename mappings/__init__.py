"""The mapping language: what a row is, what an event is, and how a row becomes an event. Uses no network, database or clock."""
