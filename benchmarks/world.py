"""A service in use, as rows: five tenants, one with most of all calls, and what people and rules have said of them.

`build()` writes `ROWS` calls (`BENCH_ROWS`, a million unless it says otherwise) by statements of an administrator, past
triggers and keys, and the same ones each time: chance is a hash of ids. All that the tables mean to each other holds,
so pages, exports and writers work on it as on rows that came in one by one.

| rows | as many as |
| --- | --- |
| tenants | 5, with 80, 10, 5, 3 and 2 % of the calls, their turns interleaved in time over `DAYS` days up to now |
| turns | one for four calls, and every tenth without any; three to a conversation; `CONTACTS` contacts |
| calls | of 40 tools, the first with a sixth of all; 6 % failed, 2 % without an outcome; results of some 400 bytes |
| labels | on 2 % of the calls, of two or three reviewers each, some with a note; one in five says another thing |
| hints, tags, archive | on 15, 1 and 3 % |
| a queue | of a fifth of the calls, in the largest tenant, a tenth of it done |
"""

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import psycopg

if TYPE_CHECKING:
    from tenants.models import Tenant, User

ROWS: Final = int(os.environ.get("BENCH_ROWS", "1000000"))
DAYS: Final = 60
CONTACTS: Final = 20_000
NUM_TOOLS: Final = 40
SHARES: Final = (80, 10, 5, 3, 2)
REVIEWERS: Final = 6
RARE_WORD: Final = "quicksilver"  # in the results of one call in 50,000
MAX_CALLS: Final = 7
_SOURCE: Final = "world"


@dataclass(frozen=True, kw_only=True)
class World:
    """What a benchmark has to name. `tenants` begin with the largest; `people` are its reviewers, the first an admin;
    `queue` is the id of the large queue in it, `useful` of a small one that is served by usefulness."""

    tenants: "tuple[Tenant, ...]"
    people: "tuple[User, ...]"
    queue: int
    useful: int

    @property
    def largest(self) -> "Tenant":
        return self.tenants[0]


def build(admin: psycopg.Connection, rows: int = ROWS) -> World:
    """Fill an empty, migrated database, and analyse it. `admin` is a superuser's connection, in autocommit."""
    from quality import rollups
    from quality.models import ReviewQueue
    from quality.review.hints import BY_NAME, VERSION
    from tenants.models import Role, Tenant
    from tenants.scope import tenant_scope
    from tests.factories import MembershipFactory

    tenants, people, toolsets = [], [], []
    for number, _share in enumerate(SHARES):
        tenant = Tenant.objects.create_tenant(slug=f"world-{number}", name=f"World {number}")
        tenants.append(tenant)
        with tenant_scope(tenant):
            roles = [Role.ADMIN, *[Role.OPERATOR] * (REVIEWERS - 1)]
            people.append(tuple(MembershipFactory(role=role).user for role in roles))
            toolsets.append(_toolsets())
    with tenant_scope(tenants[0]):
        queue, useful = (
            ReviewQueue.objects.create(name=name, ordering=ordering, labels_needed=2, created_by=people[0][0]).pk
            for name, ordering in (("Everything", "newest"), ("Most useful", "useful"))
        )
    asked = {
        "turns": rows * 10 // 9 // 4,
        "rows": rows,
        "tenants": [tenant.pk for tenant in tenants],
        "bounds": [sum(SHARES[:at]) for at in range(len(SHARES))],
        "reviewers": [user.pk for of_tenant in people for user in of_tenant],
        "toolsets": [pk for pks in toolsets for pk in pks],
        "rules": list(BY_NAME),
        "version": VERSION,
        "queue": queue,
        "useful": useful,
        "largest": tenants[0].pk,
        "queued": rows // 5,
    }
    with admin.transaction():
        # Past triggers: keys are not looked up for each row, and hours are marked once, below.
        admin.execute("SET LOCAL session_replication_role = replica")
        admin.execute("SET LOCAL synchronous_commit = off")
        for name, statement in _STATEMENTS.items():
            wanted = {key: value for key, value in asked.items() if f"%({key})" in statement}
            try:
                admin.execute(statement, wanted or None)
            except psycopg.Error as error:
                error.add_note(f"While {name} were written.")
                raise
    admin.execute("VACUUM ANALYZE")
    for tenant in tenants:
        with tenant_scope(tenant):
            rollups.rebuild()
            while rollups.count_marked():
                pass
    admin.execute("VACUUM ANALYZE call_hours, touched_hours")
    return World(tenants=tuple(tenants), people=people[0], queue=queue, useful=useful)


def find(admin: psycopg.Connection) -> World | None:
    """The world that `build` has left in this database, if it did."""
    from quality.models import ReviewQueue
    from tenants.models import Membership, Tenant
    from tenants.scope import tenant_scope

    found = admin.execute("SELECT id, slug, name FROM tenants WHERE slug LIKE 'world-%' ORDER BY slug").fetchall()
    if not found:
        return None
    tenants = tuple(Tenant(pk=pk, slug=slug, name=name) for pk, slug, name in found)
    with tenant_scope(tenants[0]):
        queues = dict(ReviewQueue.objects.values_list("name", "pk"))
        people = tuple(one.user for one in Membership.objects.order_by("pk").select_related("user"))
    return World(tenants=tenants, people=people, queue=queues["Everything"], useful=queues["Most useful"])


def _toolsets() -> tuple[int, int]:
    from tests.factories import ToolsetFactory

    tools = [
        {
            "type": "function",
            "function": {
                "name": f"tool_{number:02}",
                "description": f"Tool {number}.",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "ref": {"type": "string"}},
                    "required": ["city"],
                },
            },
        }
        for number in range(NUM_TOOLS)
    ]
    return tuple(ToolsetFactory(tools=json.dumps(some)).pk for some in (tools, tools[: NUM_TOOLS - 2]))  # type: ignore[return-value]


_TOOL: Final = f"'tool_' || lpad(floor({NUM_TOOLS} * power(pg_temp.dice(t.id, 20 + n, 100000) / 1e5, 2))::text, 2, '0')"
_BY: Final = f"(%(reviewers)s::bigint[])[array_position(%(tenants)s::bigint[], c.tenant_id) * {REVIEWERS} - {{}}]"
_LABEL: Final = (
    "(ARRAY['good_reply', 'good_reply', 'good_reply', 'bad_args', 'bad_args', 'wrong_tool', 'missing_tool', 'other'])"
)
_CALL: Final = "c.tenant_id, c.turn_id, c.cycle, c.id"

# In this order. `dice(id, salt, sides)` is a number from 0 below `sides`.
_STATEMENTS: Final = {
    "dice": """
        CREATE FUNCTION pg_temp.dice(id bigint, salt bigint, sides bigint) RETURNS bigint LANGUAGE sql IMMUTABLE AS
        $$ SELECT (hashint8extended(id, salt) & 9007199254740991) %% sides $$
    """.replace("%%", "%"),
    "turns": f"""
        INSERT INTO agent_turns (tenant_id, source, external_id, content_sha256, conversation_id, contact_id,
            message_id, outbound_message_id, state, end_reason, model, provider, style_id, prompt_version, toolset_id,
            position, messages, system, num_calls, num_cycles, warnings, started_at, time_recorded, duration_ms,
            hints_version, created_at)
        SELECT (%(tenants)s::bigint[])[place], '{_SOURCE}', 'turn-' || n, sha256(int8send(n)),
            'conversation-' || place || '-' || n / 300 || '-' || n %% 100,
            'contact-' || pg_temp.dice(n / 300 * 100 + n %% 100, 1, {CONTACTS}), 'message-' || n, 'reply-' || n,
            'done', '', (ARRAY['small', 'large'])[1 + (pg_temp.dice(n, 3, 4) / 3)], 'openai',
            (ARRAY['friendly', 'formal', 'brief'])[1 + pg_temp.dice(n, 4, 3)], 'v' || n * 4 / %(turns)s,
            (%(toolsets)s::bigint[])[place * 2 - pg_temp.dice(n, 5, 10) / 9], n / 100 %% 3,
            '[{{"role": "user", "content": "Please look at case ' || n || ' in '
                || (ARRAY['Zürich', 'Napoli', 'Córdoba', 'Казань'])[1 + n %% 4] || ' for me."}}, '
                || '{{"role": "assistant", "content": "I have looked at it: ' || repeat(md5(n::text) || ' ', 6)
                || '"}}]',
            '"You are a helpful assistant."',
            CASE WHEN pg_temp.dice(n, 6, 10) > 0 THEN 1 + pg_temp.dice(n, 7, {MAX_CALLS}) ELSE 0 END, 3, '{{}}',
            now() - interval '1 minute' - (%(turns)s - n) * interval '{DAYS} days' / %(turns)s, true,
            500 + pg_temp.dice(n, 8, 4000), %(version)s,
            now() - (%(turns)s - n) * interval '{DAYS} days' / %(turns)s
        FROM generate_series(1, %(turns)s) n
            CROSS JOIN LATERAL (SELECT count(*)::int AS place FROM unnest(%(bounds)s::int[]) b
                WHERE b <= pg_temp.dice(n, 2, 100)) p
    """,
    "calls": f"""
        INSERT INTO agent_tool_calls (tenant_id, turn_id, cycle, index, tool_call_id, tool_name, args, result, is_error,
            error, state, started_at, time_recorded, duration_ms, source, external_id, content_sha256, conversation_id,
            contact_id, message_id, outbound_message_id, model, provider, style_id, prompt_version, toolset_id,
            warnings, created_at)
        SELECT t.tenant_id, t.id, n / 3, n %% 3, 'call_' || n, {_TOOL},
            '{{"city": "' || (ARRAY['Zürich', 'Napoli', 'Córdoba', 'Казань'])[1 + pg_temp.dice(t.id, 40 + n, 4)]
                || '", "days": ' || pg_temp.dice(t.id, 50 + n, 30) || ', "ref": "'
                || md5((t.id * 8 + n)::text) || '"}}',
            CASE WHEN luck >= 8 THEN '{{"found": ' || pg_temp.dice(t.id, 60 + n, 500) || ', "note": "'
                || (ARRAY['sunny', 'rain', 'nevicata', 'lluvia', 'дождь'])[1 + pg_temp.dice(t.id, 70 + n, 5)]
                || CASE WHEN pg_temp.dice(t.id, 80 + n, 50000) = 0 THEN ' {RARE_WORD}' ELSE '' END || '", "rows": ["'
                || md5((t.id + n)::text) || '", "' || md5((t.id - n)::text) || '", "' || md5((t.id * n)::text)
                || '", "' || repeat('of no account ', (6 + pg_temp.dice(t.id, 90 + n, 20))::int) || '"]}}' END,
            CASE WHEN luck >= 8 THEN false WHEN luck >= 2 THEN true END,
            CASE WHEN luck BETWEEN 2 AND 7 THEN (ARRAY['timeout: no answer after 10 s', 'HTTP 500: internal error',
                'validation: city is required'])[1 + pg_temp.dice(t.id, 100 + n, 3)] END,
            CASE WHEN luck >= 8 THEN 'result' WHEN luck >= 2 THEN 'error' ELSE 'unknown' END,
            t.started_at + n * interval '2 seconds', true, 50 + pg_temp.dice(t.id, 110 + n, 2000), t.source,
            t.external_id || '/' || n, sha256(int8send(t.id * 8 + n)), t.conversation_id, t.contact_id, t.message_id,
            t.outbound_message_id, t.model, t.provider, t.style_id, t.prompt_version, t.toolset_id, '{{}}', t.created_at
        FROM agent_turns t CROSS JOIN generate_series(0, {MAX_CALLS - 1}) n
            CROSS JOIN LATERAL (SELECT pg_temp.dice(t.id, 10 + n, 100) AS luck) l
        WHERE t.source = '{_SOURCE}' AND n < t.num_calls ORDER BY t.id, n LIMIT %(rows)s
    """,
    "turns that got no calls": f"""
        UPDATE agent_turns t SET num_calls = n FROM (SELECT l.id, count(c.id) AS n FROM agent_turns l
            LEFT JOIN agent_tool_calls c ON c.tenant_id = l.tenant_id AND c.turn_id = l.id
            WHERE l.source = '{_SOURCE}' GROUP BY 1) k WHERE k.id = t.id AND t.num_calls <> n
    """,
    "labels": f"""
        CREATE TEMP TABLE labels ON COMMIT DROP AS
        SELECT {_CALL} AS call_id, c.tool_name, c.style_id, c.started_at, number,
            {_BY.format("((number + pg_temp.dice(c.id, 3, 6)) %% 6)")} AS reviewer_id,
            {_LABEL}[1 + pg_temp.dice(c.id, CASE WHEN pg_temp.dice(c.id, 4 + number, 5) = 0 THEN 30 + number ELSE 2
                END, 8)] AS label,
            least(c.started_at + (number * 2 + pg_temp.dice(c.id, 5, 72)) * interval '1 hour', now()) AS at
        FROM agent_tool_calls c CROSS JOIN generate_series(1, 3) number
        WHERE c.source = '{_SOURCE}' AND pg_temp.dice(c.id, 1, 50) = 0 AND number <= 2 + pg_temp.dice(c.id, 6, 2)
    """,
    "feedback": """
        INSERT INTO agent_tool_call_feedback (tenant_id, turn_id, cycle, call_id, reviewer_id, label, note, tool_name,
            style_id, faults, version, created_at, updated_at)
        SELECT tenant_id, turn_id, cycle, call_id, reviewer_id, label,
            CASE WHEN pg_temp.dice(call_id, 7, 5) = 0 THEN 'The city is another one.' ELSE '' END, tool_name, style_id,
            CASE label WHEN 'bad_args' THEN '{arg:/city}' WHEN 'wrong_tool' THEN '{tool:tool_03}'
                WHEN 'missing_tool' THEN '{missing:tool_05}' ELSE '{}' END::text[], number, at, at
        FROM labels ORDER BY at
    """,
    "events": """
        INSERT INTO agent_tool_call_feedback_events (tenant_id, turn_id, cycle, call_id, reviewer_id, action, label,
            note, version, nonce, created_at)
        SELECT tenant_id, turn_id, cycle, call_id, reviewer_id, 'label', label, '', number, gen_random_uuid(), at
        FROM labels ORDER BY at
    """,
    "reviews": f"""
        INSERT INTO agent_tool_call_reviews (tenant_id, turn_id, cycle, call_id, version, label, num_labels, tool_name,
            started_at, updated_at, archived_at)
        SELECT {_CALL}, coalesce(l.num, 0), l.label, coalesce(l.num, 0), c.tool_name, c.started_at,
            coalesce(l.at, c.started_at), CASE WHEN pg_temp.dice(c.id, 8, 100) < 3 THEN now() END
        FROM agent_tool_calls c LEFT JOIN (SELECT call_id, count(*) AS num, max(at) AS at,
            (array_agg(label ORDER BY number DESC))[1] AS label FROM labels GROUP BY 1) l ON l.call_id = c.id
        WHERE c.source = '{_SOURCE}' AND (l.call_id IS NOT NULL OR pg_temp.dice(c.id, 8, 100) < 3) ORDER BY c.id
    """,
    "hints": f"""
        INSERT INTO agent_tool_call_hints (tenant_id, turn_id, call_id, cycle, rule, path, sentence, started_at,
            created_at)
        SELECT c.tenant_id, c.turn_id, c.id, c.cycle, (%(rules)s::text[])[1 + floor(cardinality(%(rules)s::text[])
                * power(pg_temp.dice(c.id, 10, 100000) / 1e5, 3))::int], '', 'The city is not in the conversation.',
            c.started_at, now()
        FROM agent_tool_calls c WHERE c.source = '{_SOURCE}' AND pg_temp.dice(c.id, 9, 100) < 15 ORDER BY c.id
    """,
    "tags": f"""
        INSERT INTO agent_tool_call_tags (tenant_id, turn_id, cycle, call_id, tag, started_at, by_id, at)
        SELECT {_CALL}, CASE WHEN pg_temp.dice(c.id, 12, 50) = 0 THEN 'rare' ELSE
            (ARRAY['follow-up', 'refund', 'weather'])[1 + pg_temp.dice(c.id, 13, 3)] END, c.started_at,
            {_BY.format("0")}, c.started_at
        FROM agent_tool_calls c WHERE c.source = '{_SOURCE}' AND pg_temp.dice(c.id, 11, 100) = 0 ORDER BY c.id
    """,
    "entries": f"""
        INSERT INTO review_queue_entries (tenant_id, queue_id, turn_id, cycle, call_id, state, priority, why,
            started_at, tool_name, num_labels, labels_needed, is_blind, agreed, added_at, done_at)
        SELECT tenant_id, queue, turn_id, cycle, id, CASE WHEN done THEN 'done' ELSE 'open' END,
            CASE WHEN queue = %(useful)s THEN pg_temp.dice(id, 14, 3000) ELSE 0 END, '{{}}', started_at, tool_name,
            CASE WHEN done THEN 2 ELSE 0 END, 2, false, CASE WHEN done THEN pg_temp.dice(id, 15, 5) > 0 END,
            started_at + interval '1 minute', CASE WHEN done THEN least(started_at + interval '2 days', now()) END
        FROM (SELECT c.*, q.queue, pg_temp.dice(c.id, 16, 10) = 0 AND q.queue = %(queue)s AS done
            FROM (SELECT * FROM agent_tool_calls WHERE source = '{_SOURCE}' AND tenant_id = %(largest)s
                ORDER BY started_at DESC, id DESC LIMIT %(queued)s) c
            CROSS JOIN (VALUES (%(queue)s, 1), (%(useful)s, 10)) q(queue, every)
            WHERE pg_temp.dice(c.id, 17, q.every) = 0) e ORDER BY id
    """,
    "assignments": f"""
        INSERT INTO review_assignments (tenant_id, entry_id, queue_id, reviewer_id, state, label, note, seconds,
            created_at, updated_at)
        SELECT c.tenant_id, c.id, c.queue_id, {_BY.format("((number + pg_temp.dice(c.id, 3, 6)) %% 6)")}, 'labelled',
            CASE WHEN c.agreed OR number = 1 THEN 'good_reply' ELSE 'bad_args' END, '', 5 + pg_temp.dice(c.id, 18, 60),
            c.done_at, c.done_at
        FROM review_queue_entries c CROSS JOIN generate_series(1, 2) number WHERE c.state = 'done' ORDER BY c.done_at
    """,
}
