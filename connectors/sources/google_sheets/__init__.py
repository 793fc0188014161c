"""Google Sheets as a source, and as a place to write the outcome of each row into."""
