"""What reviewers go by, in versions: the newest holds, none is ever changed.

All functions need an open tenant scope.
"""

import datetime as dt
from typing import NoReturn

from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction
from django.db.models import Max
from django.utils import timezone
from django.utils.translation import gettext as _

from quality import languages
from quality.ingest.jsontext import storable
from quality.models import GuidelineVersion
from tenants import audit
from tenants.models import ApiToken, User

MAX_CHARS = 50_000


class StaleGuidelines(Exception):
    """Somebody wrote a version meanwhile: `newest` is there now (None: none)."""

    def __init__(self, newest: GuidelineVersion | None) -> None:
        number = newest.number if newest else 0
        told = _("Version %(number)s was written meanwhile. Take up what it says, then save yours again.")
        super().__init__(told % {"number": number})
        self.newest = newest


def newest_number() -> int | None:
    """The version that holds; None before the first."""
    return GuidelineVersion.objects.aggregate(newest=Max("number"))["newest"]


def newest() -> GuidelineVersion | None:
    return GuidelineVersion.objects.select_related("by").order_by("-number").first()


def versions() -> list[GuidelineVersion]:
    """All versions, newest first, with `by` loaded."""
    return list(GuidelineVersion.objects.select_related("by").order_by("-number"))


@transaction.atomic
def write(
    *,
    text: str,
    by: User,
    seen_number: int | None = None,
    token: ApiToken | None = None,
    at: dt.datetime | None = None,
) -> tuple[GuidelineVersion, bool]:
    """Make a text the newest version; the version, and whether it is new: the same text again is not.

    `seen_number` is the version that its author had before him, 0 for none; without it nothing is compared. `at` is for
    guidelines that held elsewhere before they are stored here. Raises ValidationError and StaleGuidelines.
    """
    text = text.replace("\r\n", "\n").strip()
    _check(text)
    last = newest()
    if last and last.text == text:
        return last, False
    if seen_number is not None and seen_number != (last.number if last else 0):
        raise StaleGuidelines(last)
    try:
        with transaction.atomic():
            made = GuidelineVersion.objects.create(
                number=last.number + 1 if last else 1, text=text, by=by, at=at or timezone.now()
            )
    except IntegrityError:  # another version came in at the same time
        raise StaleGuidelines(newest()) from None
    audit.record(
        "guidelines.written",
        object_type="guidelines",
        object_id=made.number,
        actor=by,
        token=token,
        before={"text": last.text} if last else None,
        after={"text": text},
        detail={"version": made.number},
    )
    return made, True


def _check(text: str) -> None:
    if not text:
        _refuse("blank", _("Write something: the guidelines cannot be empty."))
    if len(text) > MAX_CHARS:
        told = _("The guidelines have %(count)s characters; the limit is %(limit)s.")
        _refuse("too_long", told % {"count": languages.number(len(text)), "limit": languages.number(MAX_CHARS)})
    if text != storable(text):
        _refuse("unstorable", _("The guidelines hold a NUL character or half a surrogate pair. Take it out."))


def _refuse(code: str, message: str) -> NoReturn:
    raise ValidationError({"text": ValidationError(message, code=code)})
