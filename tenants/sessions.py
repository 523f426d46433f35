"""How long somebody stays signed in. (No model is imported here: logging is set up with what imports it.)"""

import time

from django.conf import settings
from django.contrib.sessions.backends.base import SessionBase

SIGNED_IN_AT = "signed_in_at"  # in a session: seconds since 1970


def is_over(session: SessionBase) -> bool:
    """Has this session lasted for longer than any may, however busy?"""
    return time.time() - session.get(SIGNED_IN_AT, 0) > settings.SESSION_MAX_AGE_S
