"""API tokens: `qlab_<public id>_<secret><checksum>`.

The public id finds the row, the SHA-256 of the whole token proves it, the checksum lets scanners and us tell a mistyped
token from a wrong one. 32 random bytes need no slow hash.
"""

import datetime as dt
import hashlib
import hmac
import re
import secrets
import zlib

from django.db import connection
from django.utils import timezone

from tenants import audit
from tenants.models import ApiToken, Membership, User
from tenants.scope import tenant_scope

_FORM = re.compile(r"qlab_([a-z0-9]{12})_([A-Za-z0-9_-]{43})([0-9a-f]{8})")
_ALPHABET = "abcdefghijklmnopqrstuvwxyz0123456789"
_USE_GRAIN = dt.timedelta(minutes=5)  # `last_used_at` is coarse: a write per request would cost more than it tells


def _checksum(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def issue_token(
    *,
    name: str,
    scopes: list[str],
    created_by: User,
    expires_at: dt.datetime | None,
    rate_per_minute: int | None = None,
) -> tuple[ApiToken, str]:
    """A new token of the open scope's tenant, and its text, which is never to be had again."""
    public_id = "".join(secrets.choice(_ALPHABET) for _ in range(12))
    head = f"qlab_{public_id}_{secrets.token_urlsafe(32)}"
    text = head + _checksum(head)
    token = ApiToken(
        name=name,
        public_id=public_id,
        digest=hashlib.sha256(text.encode()).digest(),
        scopes=scopes,
        created_by=created_by,
        expires_at=expires_at,
        rate_per_minute=rate_per_minute,
    )
    token.full_clean(exclude=["expires_at", "last_used_at", "revoked_at"])
    token.save()
    audit.record(
        "token.created",
        object_type="token",
        object_id=token.pk,
        actor=created_by,
        after={"name": name, "scopes": scopes, "expires_at": expires_at},
        detail={"name": name, "scopes": scopes},
    )
    return token, text


def revoke_token(*, token: ApiToken, actor: User) -> bool:
    """Revoke at once; False if it was revoked before."""
    changed = ApiToken.objects.filter(pk=token.pk, revoked_at=None).update(revoked_at=timezone.now())
    if changed:
        audit.record("token.revoked", object_type="token", object_id=token.pk, actor=actor, detail={"name": token.name})
    return bool(changed)


def has_form(text: str) -> bool:
    """Is this a token as we make them, by form and checksum?"""
    match = _FORM.fullmatch(text)
    return match is not None and hmac.compare_digest(_checksum(text[:-8]), match[3])


def find_token(text: str) -> ApiToken | None:
    """The live token with this text, with `created_by` loaded, or None.

    A token without the right form and checksum costs no query, one of an unknown id one; neither tells anything about
    tokens that exist. For an id that exists the cost is the same whatever is wrong.
    """
    match = _FORM.fullmatch(text)
    if not match or not has_form(text):
        return None
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id, token_id FROM lookup_token(%s)", [match[1]])
        found = cursor.fetchall()
    digest = hashlib.sha256(text.encode()).digest()
    for tenant_id, token_id in found:
        with tenant_scope(tenant_id):
            token = ApiToken.objects.select_related("tenant", "created_by").filter(pk=token_id).first()
            if token and hmac.compare_digest(bytes(token.digest), digest) and token.is_live and _is_member(token):
                _note_use(token)
                return token
    return None


def _is_member(token: ApiToken) -> bool:
    """A token outlives neither its maker's membership nor the account."""
    return Membership.objects.filter(user_id=token.created_by_id, user__is_active=True).exists()


def _note_use(token: ApiToken) -> None:
    now = timezone.now()
    if token.last_used_at is None or now - token.last_used_at > _USE_GRAIN:
        ApiToken.objects.filter(pk=token.pk).update(last_used_at=now)
