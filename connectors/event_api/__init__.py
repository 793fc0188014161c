"""Events out: the client of the Event Publishing API. `delivery.EventApi` is its door; routes, answers, lists, media, transport
and the contract check are its topics.
"""
