"""Events out: the client of the Event Publishing API. `client.EventApi` is its door; answers, delivery, lists, media and the
contract check are its topics.
"""
