"""The client of the Event Publishing API. Its entry point is `delivery.EventApi`."""
