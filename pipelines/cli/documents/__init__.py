"""What scripts read: the one JSON document of each verb, as types; their JSON Schemas are made of them."""
