"""What the frame of every page knows."""

from typing import Any

from django.http import HttpRequest
from django.utils import timezone

from quality.pages import navigation, theme
from tenants.models import Role


def shell(request: HttpRequest) -> dict[str, Any]:
    """`tenant`, `membership` and what the member may do (None outside a tenant), the pages there are for
    them, the theme, and the zone times are shown in."""
    membership = getattr(request, "membership", None)
    return {
        "tenant": getattr(request, "tenant", None),
        "membership": membership,
        "may_label": bool(membership and membership.may(Role.OPERATOR)),
        "may_configure": bool(membership and membership.may(Role.ADMIN)),
        "navigation": navigation.entries(request, membership) if membership else [],
        "theme": theme.chosen(request),
        "next_theme": theme.after(theme.chosen(request)),
        "zone": timezone.get_current_timezone_name(),
        "zone_short": timezone.localtime().tzname(),
    }
