"""How often somebody may try to sign in.

A try is counted before the password is looked at, each by one statement, so that tries of the same moment are all
counted. Keys are keyed hashes: the table lists nobody's addresses. An account that is tried too often is shut for the
rest of the window; a one-time link of the operator opens it all the same.
"""

import ipaddress

from django.db import connection
from django.utils.crypto import salted_hmac

WINDOW_S = 900
PER_ACCOUNT = 5
PER_NETWORK = 100

_COUNT = """
    INSERT INTO signin_attempts AS known (key, began_at, number) VALUES (%(key)s, now(), 1)
    ON CONFLICT (key) DO UPDATE SET
        began_at = CASE WHEN known.began_at < now() - %(window)s * interval '1 s' THEN now() ELSE known.began_at END,
        number = CASE WHEN known.began_at < now() - %(window)s * interval '1 s' THEN 1 ELSE known.number + 1 END
    RETURNING number
"""


def may_try(email: str, address: str) -> bool:
    """Count a try at this account from this address; False once there were too many at either."""
    with connection.cursor() as cursor:
        is_open = True
        for key, limit in ((_key("account", email), PER_ACCOUNT), (_key("network", network(address)), PER_NETWORK)):
            cursor.execute(_COUNT, {"key": key, "window": WINDOW_S})
            is_open &= cursor.fetchone()[0] <= limit
    return is_open


def forget(email: str) -> None:
    """Somebody signed in: the tries before it count no more."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM signin_attempts WHERE key = %s", [_key("account", email)])


def forget_old() -> None:
    """Delete the tries of windows that are over."""
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM signin_attempts WHERE began_at < now() - %s * interval '1 s'", [WINDOW_S])


def network(address: str) -> str:
    """The network that one subscriber has: /24 of IPv4, /64 of IPv6; the text itself if it is no address."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    return str(ipaddress.ip_network((parsed, 24 if parsed.version == 4 else 64), strict=False))


def _key(kind: str, value: str) -> bytes:
    return salted_hmac(f"tenants.throttle.{kind}", value, algorithm="sha256").digest()
