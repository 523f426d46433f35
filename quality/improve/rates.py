"""How often a group's fault is found before and after it was mended.

The share is of labelled items: calls of the group's tool and style (replies without a call, where the fault is a call
that is missing) that any reviewer labelled, and of these the ones in which any reviewer found the fault. An item counts
by when its call was made, not by when it was labelled, since a fix can act on later calls only.

Before: from the group's decision before this one (at the first, from the first labelled call) up to the decision. Not
an equally long time as the one after: just after a decision that would be hours with hardly a label in them, and labels
are what is scarce. The intervals say what unequal numbers are worth.
"""

import datetime as dt
from dataclasses import dataclass
from typing import Any

from django.db import connection

from quality.cases.statistics import wilson
from quality.models import Proposal, ProposalState
from quality.review.queues.waiting import hidden_row
from tenants.scope import current_tenant_id

MIN_ITEMS = 20  # of 20 without a fault still up to 16 % may have it; of fewer nothing can be said


@dataclass(frozen=True, kw_only=True)
class Rate:
    """The share of one period; `since` None: from the first call on."""

    num_items: int
    num_faulty: int
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    @property
    def share(self) -> float | None:
        """None where there is nothing to divide by."""
        return self.num_faulty / self.num_items if self.num_items else None

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval (Wilson)."""
        return wilson(self.num_faulty, self.num_items).low

    @property
    def high(self) -> float:
        return wilson(self.num_faulty, self.num_items).high

    @property
    def too_few(self) -> bool:
        """Too few calls yet: fewer than MIN_ITEMS, so that the share is not worth showing as one."""
        return self.num_items < MIN_ITEMS


@dataclass(frozen=True, kw_only=True)
class Rates:
    """`after` is None while the proposal is not applied; `before` then goes up to now."""

    before: Rate
    after: Rate | None = None


_COUNT = f"""
SELECT
  count(DISTINCT item) FILTER (WHERE NOT is_after),
  count(DISTINCT item) FILTER (WHERE NOT is_after AND is_faulty),
  count(DISTINCT item) FILTER (WHERE is_after),
  count(DISTINCT item) FILTER (WHERE is_after AND is_faulty)
FROM (
  SELECT r.id AS item, coalesce(r.started_at >= %(decided)s::timestamptz, false) AS is_after,
    f.label = %(label)s AND %(fault)s = ANY (f.faults) AS is_faulty
  FROM agent_tool_call_feedback f
  JOIN agent_tool_call_reviews r
    ON r.tenant_id = f.tenant_id AND r.turn_id = f.turn_id AND r.cycle = f.cycle
    AND r.call_id IS NOT DISTINCT FROM f.call_id
  WHERE f.tenant_id = %(tenant)s AND f.tool_name = %(tool)s AND f.style_id = %(style)s
    AND (%(since)s::timestamptz IS NULL OR r.started_at >= %(since)s) AND NOT {hidden_row("f", "reviewer_id")}
) labelled
"""  # noqa: S608  (no input)


def rates_of(proposal: Proposal, *, viewer: int | None = None) -> Rates:
    """The rates of a proposal's group, of the labels that a `viewer` may see, in one query. Needs an open tenant
    scope."""
    decided = proposal.decided_at if proposal.state == ProposalState.APPLIED else None
    params: dict[str, Any] = {
        "tenant": current_tenant_id(),
        "label": proposal.label,
        "fault": proposal.fault,
        "tool": proposal.tool_name,
        "style": proposal.style_id,
        "since": proposal.covers_since,
        "decided": decided,
        "viewer": viewer,
    }
    with connection.cursor() as cursor:
        cursor.execute(_COUNT, params)
        ((items_before, faulty_before, items_after, faulty_after),) = cursor.fetchall()
    before = Rate(num_items=items_before, num_faulty=faulty_before, since=proposal.covers_since, until=decided)
    if decided is None:
        return Rates(before=before)
    return Rates(before=before, after=Rate(num_items=items_after, num_faulty=faulty_after, since=decided))
