"""The state DB: what was sent to the service so far, in SQLite or PostgreSQL. The only package that uses SQL."""
