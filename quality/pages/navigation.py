"""The pages of a tenant, as the frame lists them."""

from dataclasses import dataclass

from django.http import HttpRequest
from django.urls import reverse
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import pgettext_lazy

from tenants.models import Membership, Role


@dataclass(frozen=True)
class Place:
    """A page in the navigation: URL name, word, key, and the role it needs."""

    name: str
    label: Promise
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
        Place("overview", _("Overview"), "g o"),
        Place("chart-page", _("Charts"), "g 6"),
        Place("review", pgettext_lazy("page", "Review"), "g r"),
        Place("queue-list", _("Queues"), "g 1"),
        Place("call-list", _("Calls"), "g c"),
        Place("turn-list", _("Turns"), "g n"),
        Place("bulk-list", _("Bulk actions"), "g 2", Role.OPERATOR),
        Place("pending", pgettext_lazy("page", "Pending"), "g p"),
        Place("run", pgettext_lazy("page", "Run"), "g u", Role.OPERATOR),
    ],
    [
        Place("proposal-list", _("Proposals"), "g x"),
        Place("case-list", _("Cases"), "g a"),
        Place("replay-list", _("Replays"), "g j"),
        Place("coach", _("Coach"), "g w"),
        Place("guidelines", _("Guidelines"), "g q"),
        Place("suggestion-list", _("Suggestions"), "g 5"),
        Place("agreement", _("Agreement"), "g b"),
        Place("reviewers", _("Reviewers"), "g z", Role.OPERATOR),
    ],
    [
        Place("import-list", pgettext_lazy("page", "Import"), "g i"),
        Place("export", pgettext_lazy("page", "Export"), "g e", Role.ADMIN),
    ],
    [
        Place("tool-list", _("Tools"), "g f"),
        Place("model-list", _("Models"), "g l"),
        Place("style-list", _("Styles"), "g s"),
        Place("schedule-list", _("Schedules"), "g h"),
        Place("exchange", _("Exchange"), "g d"),
        Place("secret-list", _("Secrets"), "g v", Role.ADMIN),
        Place("mask-list", _("Privacy"), "g 4"),
        Place("member-list", _("Members"), "g m"),
        Place("token-list", _("API tokens"), "g k", Role.ADMIN),
        Place("webhook-list", _("Webhooks"), "g 3", Role.ADMIN),
        Place("audit-list", _("Audit log"), "g y", Role.ADMIN),
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
                    Entry(place.name, str(place.label), place.key, url, is_current=_covers(url, request.path, slug))
                )
        groups.append(group)
    return groups


def _covers(url: str, path: str, slug: str) -> bool:
    overview = f"/t/{slug}/"
    return path == url if url == overview else path.startswith(url)
