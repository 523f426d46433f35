"""The deployment id: drawn once when the service as a whole starts, shared by all of its processes.

What lives for one deployment is kept in the shared cache under it. A process that restarts finds it again; a restart of
the service draws another id (`manage.py new_deployment`), and what was kept is out of reach.
"""

import uuid

from django.core.cache import cache

_KEY = "deployment"


def new() -> str:
    drawn = uuid.uuid4().hex
    cache.set(_KEY, drawn, timeout=None)
    return drawn


def current() -> str:
    """The id of this deployment; one is drawn where the cache holds none, by whoever comes first."""
    found = cache.get(_KEY)
    return found if isinstance(found, str) else str(cache.get_or_set(_KEY, uuid.uuid4().hex, timeout=None))
