"""Secrets of a tenant: written, replaced, deleted, and read for one use at a time. Nothing here shows a value.

A secret of tools is sent only with the tool and to the origin that it was set for. The first tool that refers to a
secret takes it; from then on another tool, or another host of the same one, has to be given the value again.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings
from django.core.exceptions import ValidationError
from django.db import connection, transaction
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _

from tenants import audit, envelope
from tenants.models import ApiToken, Purpose, Secret, SecretUse, User
from tenants.scope import current_tenant_id, tenant_scope
from tenants.versions import raise_version

MAX_VALUE = 8_000  # bytes; it has to fit into a header
ROTATED_AT_ONCE = 100
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")  # what `{secret:NAME}` takes


@dataclass(frozen=True, slots=True)
class Place:
    """Where a secret may go: with this tool, to this origin (`scheme://host:port`)."""

    tool_name: str
    origin: str


@transaction.atomic
def set_secret(
    *,
    name: str,
    value: str,
    actor: User | None,
    token: ApiToken | None = None,
    purpose: Purpose = Purpose.TOOL,
    places: Iterable[Place] = (),
) -> Secret:
    """Seal a new value, under a data key of its own, and let it go to `places` and nowhere else.

    Raises ValidationError for a name or value that cannot be used, `envelope.NoKeys` where the operator set no keys.
    """
    if purpose is Purpose.TOOL and not _NAME.fullmatch(name):
        raise ValidationError({"name": _("A name is made of letters, digits and _, and does not begin with a digit.")})
    _check_value(value)
    secret = Secret.objects.select_for_update().filter(name=name).first()
    is_new = secret is None
    if secret is None:
        secret = Secret(pk=_next_id(), name=name, purpose=purpose, tenant_id=current_tenant_id())
    _seal(secret, value)
    secret.set_by = actor
    secret.save(force_insert=is_new)
    SecretUse.objects.filter(secret=secret).delete()
    allow(secret, places)
    raise_version()
    audit.record(
        "secret.set" if is_new else "secret.replaced",
        object_type="secret",
        object_id=secret.pk,
        actor=actor,
        token=token,
        detail={"name": name, "fingerprint": secret.fingerprint},
    )
    return secret


def allow(secret: Secret, places: Iterable[Place]) -> None:
    """Let a secret go to these places, too."""
    uses = [SecretUse(secret=secret, tool_name=place.tool_name, origin=place.origin) for place in places]
    if not uses:
        return
    SecretUse.objects.bulk_create(uses, ignore_conflicts=True)
    if not secret.was_attached:
        secret.was_attached = True
        secret.save(update_fields=["was_attached"])


@transaction.atomic
def place_tool(place: Place, names: Iterable[str]) -> list[str]:
    """A tool stands at this place now and refers to these secrets: gives the names that it may not send (yet).

    Its leave for other origins, and for secrets that it no longer refers to, ends here.
    """
    wanted = set(names)
    SecretUse.objects.filter(tool_name=place.tool_name).exclude(origin=place.origin, secret__name__in=wanted).delete()
    for secret in Secret.objects.filter(name__in=wanted, purpose=Purpose.TOOL, was_attached=False):
        allow(secret, [place])
    return missing_at(place, wanted)


def remove_tool(tool_name: str) -> None:
    SecretUse.objects.filter(tool_name=tool_name).delete()


def missing_at(place: Place, names: Iterable[str]) -> list[str]:
    """Which of the secrets may not be sent with this tool to this origin, or do not exist."""
    allowed = SecretUse.objects.filter(tool_name=place.tool_name, origin=place.origin, secret__name__in=set(names))
    return sorted(set(names) - set(allowed.values_list("secret__name", flat=True)))


@transaction.atomic
def delete_secret(*, secret: Secret, actor: User, token: ApiToken | None = None) -> None:
    audit.record(
        "secret.deleted",
        object_type="secret",
        object_id=secret.pk,
        actor=actor,
        token=token,
        detail={"name": secret.name},
    )
    secret.delete()
    raise_version()


def read_for_tool(place: Place, names: Sequence[str], *, run: str) -> dict[str, str]:
    """The values that this tool may send to this origin, each read put on record. Raises `envelope.SecretInvalid`."""
    secrets = Secret.objects.filter(
        name__in=names, purpose=Purpose.TOOL, uses__tool_name=place.tool_name, uses__origin=place.origin
    )
    return {secret.name: read(secret, used_by=place.tool_name, run=run) for secret in secrets}


def read(secret: Secret, *, used_by: str, run: str) -> str:
    """The value, for one use, which is audited. Raises `envelope.SecretInvalid`."""
    value = envelope.open_envelope(_envelope(secret), settings.APP_KEKS, _bound_to(secret))
    detail = {"name": secret.name, "usedBy": used_by, "run": run}
    audit.record("secret.used", object_type="secret", object_id=secret.pk, detail=detail)
    return value


def stored_kids() -> list[tuple[int, str, int]]:
    """Tenant id, key id and number of secrets, over all tenants: what the operator of the keys must know."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT tenant_id, kid, num_secrets FROM lookup_secret_kids() ORDER BY 1, 2")
        return [(int(tenant_id), kid, int(count)) for tenant_id, kid, count in cursor.fetchall()]


def rotate_batch(tenant_id: int, *, limit: int = ROTATED_AT_ONCE) -> tuple[int, list[str]]:
    """Wrap up to `limit` secrets of a tenant anew under the writing key, in one transaction.

    Gives how many were done, and the names of those that do not open: they stay as they are.
    """
    keyring = settings.APP_KEKS
    done, broken = 0, []
    with tenant_scope(tenant_id):
        pending = Secret.objects.exclude(kid=keyring.writing).filter(kid__in=keyring.keys)
        for secret in pending.select_for_update(skip_locked=True).order_by("pk")[:limit]:
            try:
                sealed = envelope.rewrap(_envelope(secret), keyring, _bound_to(secret))
            except envelope.SecretInvalid:
                broken.append(secret.name)
                continue
            secret.kid, secret.wrapped_key = sealed.kid, sealed.wrapped_key
            secret.save(update_fields=["kid", "wrapped_key"])
            done += 1
    return done, broken


def _check_value(value: str) -> None:
    if not value:
        raise ValidationError({"value": _("Enter the value.")})
    if any(ord(character) < 32 or ord(character) == 127 for character in value):
        raise ValidationError({"value": _("A secret holds no line breaks and no control characters.")})
    try:
        size = len(value.encode())
    except UnicodeEncodeError as error:
        raise ValidationError({"value": _("This is not valid Unicode.")}) from error
    if size > MAX_VALUE:
        told = _("A secret has %(limit)s bytes at most.") % {"limit": number_format(MAX_VALUE)}
        raise ValidationError({"value": told})


def _seal(secret: Secret, value: str) -> None:
    keyring = settings.APP_KEKS
    sealed = envelope.seal(value, keyring, _bound_to(secret))
    secret.kid, secret.wrapped_key, secret.ciphertext = sealed.kid, sealed.wrapped_key, sealed.ciphertext
    secret.fingerprint = envelope.fingerprint(value, keyring, tenant_id=current_tenant_id())
    secret.set_at = timezone.now()


def _envelope(secret: Secret) -> envelope.Envelope:
    return envelope.Envelope(secret.kid, bytes(secret.wrapped_key), bytes(secret.ciphertext))


def _bound_to(secret: Secret) -> bytes:
    return envelope.binding(tenant_id=current_tenant_id(), secret_id=secret.pk, name=secret.name)


def _next_id() -> int:
    """The id is part of what the envelope is bound to, so it is drawn first."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT nextval(pg_get_serial_sequence('secrets', 'id'))")
        return int(cursor.fetchone()[0])
