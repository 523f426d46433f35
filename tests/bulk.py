"""Many rows at once, written by the database itself."""

from django.db import connection

from tenants.models import User
from tests.factories import TurnFactory


def labelled_calls(number: int, reviewer: User, *, result_bytes: int = 100) -> None:
    """Calls of one turn in the open scope, each with one label; results of `result_bytes` that do not compress."""
    turn = TurnFactory(num_calls=min(number, 32_000), messages=None)
    noise = f"(SELECT string_agg(md5(n::text || '/' || k), '') FROM generate_series(1, {result_bytes // 32 or 1}) k)"
    with connection.cursor() as cursor:
        cursor.execute(
            f"""
            INSERT INTO agent_tool_calls (tenant_id, turn_id, cycle, index, tool_name, args, result, is_error, state,
                started_at, time_recorded, source, external_id, content_sha256, conversation_id, contact_id, message_id,
                outbound_message_id, model, provider, style_id, prompt_version, warnings, created_at)
            SELECT %(tenant)s, %(turn)s, n / 1000, n %% 1000, 'tool-' || n %% 7, '{{"n": ' || n || '}}',
                '"' || {noise} || '"', n %% 10 = 0, CASE WHEN n %% 10 = 0 THEN 'error' ELSE 'result' END,
                timestamptz '2026-01-01' + n * interval '1 second', true, 'bulk', 'bulk-' || n, ''::bytea, 'c', '', '',
                '', 'm', '', '', '', '{{}}', now()
            FROM generate_series(0, %(number)s - 1) n
            """,
            {"tenant": turn.tenant_id, "turn": turn.pk, "number": number},
        )
        cursor.execute(
            """
            INSERT INTO agent_tool_call_feedback (tenant_id, turn_id, cycle, call_id, reviewer_id, label, note, version,
                created_at, updated_at)
            SELECT tenant_id, turn_id, cycle, id, %(reviewer)s, 'other', '', 1, started_at, started_at
            FROM agent_tool_calls WHERE tenant_id = %(tenant)s AND source = 'bulk'
            """,
            {"tenant": turn.tenant_id, "reviewer": reviewer.pk},
        )
