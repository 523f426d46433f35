"""The deployment id: drawn once when the service as a whole starts, shared by all of its processes.

What lives for one deployment is kept in the shared cache under it. A process that restarts finds it again; a restart of
the service draws another id (`manage.py new_deployment`), and what was kept is out of reach.
"""

import uuid

from tenants import shared

_KEY = "deployment"


def new() -> str:
    """Draw another id. Raises `shared.CacheAway`."""
    drawn = uuid.uuid4().hex
    shared.write(_KEY, drawn)
    return drawn


def current() -> str:
    """The id of this deployment; one is drawn where the cache holds none, by whoever comes first. Empty where the cache
    is away and was never read."""
    found = shared.read(_KEY)
    if found is None and not shared.is_away():
        found = shared.settle(_KEY, uuid.uuid4().hex)
    return found or ""


def confirmed() -> str:
    """The id as the cache holds it at this moment, for what is written under it: the one that was read last may be gone
    with a restart of the cache, and with it would go what is written. Raises `shared.CacheAway`."""
    found = shared.settle(_KEY, uuid.uuid4().hex)
    if found is None:
        raise shared.CacheAway
    return found
