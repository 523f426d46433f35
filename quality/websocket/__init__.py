"""`/ws`: send messages and follow their turns over one connection.

caller.py      who is at the other end, and what they may do now
messages.py    what may be sent in, and the use case of each
consumer.py    one connection: answers, events, limits
routing.py     where it is
"""
