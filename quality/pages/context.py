"""What the frame of every page knows."""

from functools import partial
from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from quality import languages
from quality.pages import navigation, theme, zone
from quality.turns.waiting import COUNT_CAP, num_waiting
from tenants.models import Membership, Role
from tenants.scope import tenant_scope


def shell(request: HttpRequest) -> dict[str, Any]:
    """`tenant`, `membership` and what the member may do (None outside a tenant), the pages there are for
    them, the theme, the languages there are and the one that was chosen, and the zone times are shown in."""
    membership = getattr(request, "membership", None)
    return {
        "tenant": getattr(request, "tenant", None),
        "membership": membership,
        "may_label": bool(membership and membership.may(Role.OPERATOR)),
        "may_configure": bool(membership and membership.may(Role.ADMIN)),
        "navigation": navigation.entries(request, membership) if membership else [],
        "num_pending": partial(_num_pending, membership),
        "theme": theme.chosen(request),
        "next_theme": theme.after(theme.chosen(request)),
        "language": languages.chosen(request),
        "languages": languages.names(),
        "zone": timezone.get_current_timezone_name(),
        "chosen_zone": zone.chosen(request),
        "zone_short": timezone.localtime().tzname(),
    }


def _num_pending(membership: Membership | None) -> str:
    """How many calls wait for a person; asked by the frame alone, so that other answers cost nothing for it."""
    if membership is None:
        return ""
    with tenant_scope(membership.tenant):
        count = num_waiting()
    return f"{COUNT_CAP}+" if count > COUNT_CAP else str(count or "")
