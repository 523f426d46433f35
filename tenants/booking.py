"""The booking link of a tenant: sealed, judged before it is kept, offered from the next turn on."""

from django.core.exceptions import ValidationError
from django.db import transaction
from django.utils.translation import gettext as _

from engine.tools.booking import booking_url_fault
from tenants import secrets
from tenants.models import ApiToken, Purpose, Secret, User

NAME = "tool_booking_url"


@transaction.atomic
def set_url(url: str, *, actor: User, token: ApiToken | None = None) -> None:
    """Raises ValidationError for a link that is not https, not public, or holds credentials; envelope.NoKeys."""
    url = url.strip()
    if reason := booking_url_fault(url):
        told = (
            _("This link cannot be offered: it %(why)s.")
            if reason.startswith("is ")
            else _("This link cannot be offered: %(why)s.")
        )
        raise ValidationError({"url": told % {"why": reason}})
    secrets.set_secret(name=NAME, value=url, actor=actor, token=token, purpose=Purpose.BOOKING)


def secret() -> Secret | None:
    return Secret.objects.filter(name=NAME, purpose=Purpose.BOOKING).first()


def url(*, run: str) -> str | None:
    """The link, its reading on record; None where none is set. Raises envelope.SecretInvalid."""
    found = secret()
    return secrets.read(found, used_by="offer_booking_link", run=run) if found is not None else None


def remove(*, actor: User, token: ApiToken | None = None) -> bool:
    """False if there was none."""
    found = secret()
    if found is not None:
        secrets.delete_secret(secret=found, actor=actor, token=token)
    return found is not None
