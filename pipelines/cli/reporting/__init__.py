"""The command `report`: where a feed stands, on one page for a partner's editor."""
