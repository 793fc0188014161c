"""Notifications for the owners of feeds: what is wrong, who is notified, and each cause once until it is over."""
