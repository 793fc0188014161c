"""WHAT WE HAVE SAID to the service so far. The only room that knows SQL; it never meets `connectors`."""
