"""The pages of a tenant, as the frame lists them."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse

from tenants.models import Membership, Role


@dataclass(frozen=True)
class Place:
    """A page in the navigation: URL name, word, key, and the role it needs."""

    name: str
    label: str
    key: str
    role: Role = Role.VIEWER


@dataclass(frozen=True)
class Entry:
    name: str
    label: str
    key: str
    url: str
    is_current: bool


GROUPS: list[list[Place]] = [
    [
        Place("overview", "Overview", "g o"),
        Place("review", "Review", "g r"),
        Place("call-list", "Calls", "g c"),
        Place("turn-list", "Turns", "g n"),
        Place("pending", "Pending", "g p"),
        Place("run", "Run", "g u", Role.OPERATOR),
    ],
    [
        Place("proposal-list", "Proposals", "g x"),
        Place("case-list", "Cases", "g a"),
        Place("replay-list", "Replays", "g j"),
        Place("coach", "Coach", "g w"),
        Place("guidelines", "Guidelines", "g q"),
    ],
    [
        Place("import-list", "Import", "g i"),
        Place("export", "Export", "g e", Role.ADMIN),
    ],
    [
        Place("tool-list", "Tools", "g f"),
        Place("model-list", "Models", "g l"),
        Place("style-list", "Styles", "g s"),
        Place("schedule-list", "Schedules", "g h"),
        Place("exchange", "Exchange", "g d"),
        Place("secret-list", "Secrets", "g v", Role.ADMIN),
        Place("member-list", "Members", "g m"),
        Place("token-list", "API tokens", "g k", Role.ADMIN),
        Place("webhook-list", "Webhooks", "g 3", Role.ADMIN),
        Place("audit-list", "Audit log", "g y", Role.ADMIN),
    ],
]


def entries(request: HttpRequest, membership: Membership) -> list[list[Entry]]:
    """Groups of entries that this member may open. The one whose address begins the request's is current."""
    slug = membership.tenant.slug
    groups = []
    for places in GROUPS:
        group = []
        for place in places:
            if membership.may(place.role):
                url = reverse(place.name, args=[slug])
                group.append(
                    Entry(place.name, place.label, place.key, url, is_current=_covers(url, request.path, slug))
                )
        groups.append(group)
    return groups


def _covers(url: str, path: str, slug: str) -> bool:
    overview = f"/t/{slug}/"
    return path == url if url == overview else path.startswith(url)
