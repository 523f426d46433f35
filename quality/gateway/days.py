"""What went through on a day, and what was not recorded. Counted in the process until the database takes it."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass

from django.db import connection
from django.db.models import QuerySet
from django.utils import timezone

from quality.gateway.exchange import CALLS_IN_TEXT, Exchange
from quality.models import GatewayDay
from tenants import masks
from tenants.scope import current_tenant_id

SHOWN_DAYS = 7
MAX_REASON = 500


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """Whose numbers these are. In this order rows are locked, so that no two processes wait for each other."""

    tenant_id: int
    day: dt.date
    label: str


@dataclass(slots=True)
class Tally:
    """Numbers of one day and model that are not in the database yet."""

    num_requests: int = 0
    num_failed: int = 0
    num_repaired: int = 0
    num_gaps: int = 0
    last_gap_at: dt.datetime | None = None
    last_gap: str = ""

    def add(self, other: "Tally") -> None:
        self.num_requests += other.num_requests
        self.num_failed += other.num_failed
        self.num_repaired += other.num_repaired
        self.num_gaps += other.num_gaps
        if other.last_gap_at is not None:
            self.last_gap_at, self.last_gap = other.last_gap_at, other.last_gap


def place_of(exchange: Exchange) -> Place:
    return Place(exchange.tenant_id, exchange.started_at.date(), exchange.label)


def tally_of(exchange: Exchange) -> Tally:
    return Tally(1, int(exchange.has_failed), int(CALLS_IN_TEXT in exchange.warnings))


def gap(exchange: Exchange, reason: str) -> Tally:
    """A request that went through and was not recorded."""
    return Tally(num_gaps=1, last_gap_at=exchange.started_at, last_gap=reason[:MAX_REASON])


def write(place: Place, tally: Tally) -> None:
    """Add to the row of the open scope's tenant."""
    masker = masks.at_write() if tally.last_gap else None  # it may quote what was not recorded
    last_gap = masker.sentence(tally.last_gap) if masker else tally.last_gap
    with connection.cursor() as cursor:
        cursor.execute(
            "INSERT INTO gateway_days AS d (tenant_id, day, model_label, num_requests, num_failed, num_repaired, "
            "num_gaps, last_gap_at, last_gap) VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s) "
            "ON CONFLICT (tenant_id, day, model_label) DO UPDATE SET "
            "num_requests = d.num_requests + EXCLUDED.num_requests, num_failed = d.num_failed + EXCLUDED.num_failed, "
            "num_repaired = d.num_repaired + EXCLUDED.num_repaired, num_gaps = d.num_gaps + EXCLUDED.num_gaps, "
            "last_gap_at = COALESCE(EXCLUDED.last_gap_at, d.last_gap_at), "
            "last_gap = CASE WHEN EXCLUDED.last_gap_at IS NULL THEN d.last_gap ELSE EXCLUDED.last_gap END",
            [
                current_tenant_id(), place.day, place.label, tally.num_requests, tally.num_failed, tally.num_repaired,
                tally.num_gaps, tally.last_gap_at, last_gap,
            ],
        )  # fmt: skip


def last_days() -> Sequence[GatewayDay]:
    """The numbers of the last days, newest first. Needs an open tenant scope."""
    return list(_recent().order_by("-day", "model_label"))


def last_gaps() -> Sequence[GatewayDay]:
    """Those with requests that were not recorded, the newest gap first. Needs an open tenant scope."""
    return list(_recent().filter(num_gaps__gt=0).order_by("-last_gap_at"))


def _recent() -> QuerySet[GatewayDay]:
    return GatewayDay.objects.filter(day__gte=timezone.now().date() - dt.timedelta(days=SHOWN_DAYS - 1))
