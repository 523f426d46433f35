"""What people said of a reply that made no call hangs on its turn and cycle. When more of a trace comes in, a reply may
turn out to be another one in order: what hangs on it follows, its history, too."""
# ruff: noqa: S608 - the names put into SQL here are those of our own tables

from collections.abc import Collection, Mapping, Sequence

from django.db import connection

from quality.ingest.records import MAX_PLACE
from tenants.scope import current_tenant_id

_EVENTS = "agent_tool_call_feedback_events"  # which a function of the database alone may change
_TABLES = (
    "agent_tool_call_reviews",
    "agent_tool_call_feedback",
    "agent_tool_call_tags",
    "review_queue_entries",
    "label_suggestions",
)

type Cycles = Mapping[int, int]  # from the cycle that a reply had to the one that it has


def last_replies(turn_ids: Sequence[int]) -> dict[int, tuple[int, str]]:
    """Cycle and message of the reply that ended these turns without a call, as they were read last."""
    if not turn_ids:
        return {}
    with connection.cursor() as cursor:
        cursor.execute(
            "SELECT id, num_cycles - 1, outbound_message_id FROM agent_turns "
            "WHERE tenant_id = %s AND id = ANY(%s) AND outbound_message_id <> '' AND num_cycles > 0",
            [current_tenant_id(), list(turn_ids)],
        )
        return {turn: (cycle, message) for turn, cycle, message in cursor.fetchall()}


def follow(shifts: Mapping[int, Cycles]) -> None:
    """Bring along what hangs on replies of these turns. Where something hangs already that stays, nothing comes."""
    wanted = {turn: {old: new for old, new in cycles.items() if old != new} for turn, cycles in shifts.items()}
    held = _held([turn for turn, cycles in wanted.items() if cycles])
    rows = [(turn, old, new) for turn, cycles in held.items() for old, new in moving(wanted[turn], cycles).items()]
    if not rows:
        return
    turns, olds, news = (list(column) for column in zip(*rows, strict=True))
    aside = [MAX_PLACE - place for place in range(1, len(rows) + 1)]  # out of all real cycles, as calls go that move
    with connection.cursor() as cursor:
        for table in _TABLES:
            for before, after in ((olds, aside), (aside, news)):
                cursor.execute(
                    f"UPDATE {table} h SET cycle = n.new FROM unnest(%s::bigint[], %s::int[], %s::int[]) "
                    "AS n(turn, old, new) WHERE h.tenant_id = %s AND h.turn_id = n.turn AND h.cycle = n.old "
                    "AND h.call_id IS NULL",
                    [turns, before, after, current_tenant_id()],
                )
        cursor.execute("SELECT follow_replies(%s::bigint[], %s::int[], %s::int[])", [turns, olds, news])


def moving(wanted: Cycles, held: Collection[int]) -> dict[int, int]:
    """Of the shifts of a turn those that can be made: something hangs on the old cycle, and nothing that stays on the
    new one. What waits for a cycle that is not left stays as well; of two that want the same one the first comes."""
    found: dict[int, int] = {}
    for old, new in wanted.items():
        if old in held and new not in found.values():
            found[old] = new
    while stuck := [old for old, new in found.items() if new in held and new not in found]:
        for old in stuck:
            del found[old]
    return found


def _held(turn_ids: Sequence[int]) -> dict[int, set[int]]:
    """Cycles of these turns on which something hangs beside a call."""
    found: dict[int, set[int]] = {}
    if turn_ids:
        each = " UNION ".join(
            f"SELECT turn_id, cycle FROM {table} WHERE tenant_id = %s AND turn_id = ANY(%s) AND call_id IS NULL"
            for table in (*_TABLES, _EVENTS)
        )
        with connection.cursor() as cursor:
            cursor.execute(each, [current_tenant_id(), list(turn_ids)] * (len(_TABLES) + 1))
            for turn, cycle in cursor.fetchall():
                found.setdefault(turn, set()).add(cycle)
    return found
