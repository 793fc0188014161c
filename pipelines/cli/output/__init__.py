"""What commands print: tables, notes and progress for people, JSON and CSV for scripts, the page for a partner."""
