"""What commands print: tables, sentences and progress for people, JSON and CSV for scripts, a page for the partner."""
