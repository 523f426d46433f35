"""Durable turns: created, claimed with a lease, run by the engine, written down step by step, taken up again.

create    a turn is committed as a row, then hinted to the workers
leases    claims with fencing token, renewal, release, and which tenants have something to do
worker    one per process: pulls turns, runs many at once, renews their leases, stops in good order
carry     one claimed turn from its rows through the engine to its end
fence     tools run only while the turn is ours
setup     what a turn needs from its tenant's settings: model, tools, limits, secrets
rows      engine records as rows, and back (pure)
journal   all writes of a process's turns, fenced, many in one transaction
recorder  the engine's Recorder on the journal, and the turn's live events
endings   a turn ended by another hand than its runner's
decide    what people and callers decide on open calls
bell      PostgreSQL's NOTIFY, one connection a process
events    live events as they are read and streamed
schedules turns at set times
faults    the places where a test may kill or stop a worker
"""
