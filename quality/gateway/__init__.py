"""The recording gateway: an OpenAI-compatible server that hands one model turn on, and records it.

It runs no tool and never loops. Bytes pass as they come; what it adds is said by the switches of the model. Nothing of
it waits for the database before the first byte goes out, but for callers and keys that this process has not seen.

app         the ASGI application: one request from head to end
doors       who may come in, and with what: tokens, models and keys, kept for seconds
rates       requests a minute of a token, counted in the shared cache
asked       the body of a request, and what goes on to the model's server of it
upstream    the connections to model servers, and the names of what goes wrong there
relay       a reply on its way back
events      the events of a stream as the bytes that they came in
repair      calls that come as text, and streams that come empty
wire        chunks of our own, where a stream has to be made
errors      faults in OpenAI's shape

exchange    one request and its reply, as they are handed to the recorder
recorder    the thread that records, after the reply
record      from an exchange to a turn with its calls
reply       the message in the bytes of a reply
fingerprint what makes two histories the same
days        what went through on a day, and what was not recorded
views       what processes without event streams (WSGI) say here
"""
