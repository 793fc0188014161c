"""THE LANGUAGE: what a row is, what an event is, how one becomes the other. Pure: no network, no database, no clock."""
