"""The ledger as people see it: feeds, runs, rows and problems across all feeds of a state DB. Nothing is changed here."""
