"""One way to write the audit log: `record()`."""

import hashlib
import json
from typing import Any

from django.dispatch import Signal

from tenants.context import request_id
from tenants.models import ApiToken, AuditEvent, User

recorded = Signal()
"""Sent in the transaction that wrote them, with `rows`: a list of AuditEvents. Whoever writes rows sends it."""


def fingerprint(state: dict[str, Any] | None) -> bytes | None:
    """SHA-256 of a state in canonical JSON: proves what it was without keeping it."""
    if state is None:
        return None
    return hashlib.sha256(json.dumps(state, sort_keys=True, default=str).encode()).digest()


def record(
    action: str,
    *,
    object_type: str,
    object_id: Any,
    actor: User | None = None,
    token: ApiToken | None = None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    detail: dict[str, Any] | None = None,
) -> AuditEvent:
    """Write one event of the open tenant scope, in the caller's transaction: what is rolled back was not done.

    `before` and `after` are hashed, not stored. `detail` is shown to admins: never a secret, never evidence.
    """
    row = AuditEvent.objects.create(
        action=action,
        object_type=object_type,
        object_id=str(object_id),
        actor=actor,
        token_id=token.pk if token else None,
        before_sha256=fingerprint(before),
        after_sha256=fingerprint(after),
        detail=detail or {},
        request_id=request_id.get(),
    )
    recorded.send(AuditEvent, rows=[row])
    return row
