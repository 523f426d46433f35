"""The SQL that writes a record as JSON text. Evidence columns hold JSON text and are embedded as they are."""


def text(column: str) -> str:
    return f"coalesce(to_json({column})::text, 'null')"


def number(column: str) -> str:
    return f"coalesce({column}::text, 'null')"


boolean = number


def evidence(column: str) -> str:
    return f"coalesce({column}, 'null')"


def moment(column: str) -> str:
    """A time in UTC, to the microsecond."""
    return f"""coalesce('"' || to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US') || 'Z"', 'null')"""


def constant(value: str) -> str:
    return f"""'"{value}"'"""


def record(**members: str) -> str:
    """An object; its members are expressions of JSON text that are never null, in this order."""
    parts = [
        f"""'{"," if place else "{"}"{name}":' || {value}""" for place, (name, value) in enumerate(members.items())
    ]
    return f"{' || '.join(parts)} || '}}'"


def call(alias: str) -> dict[str, str]:
    """What was called and what came of it."""
    return {
        "toolCallId": text(f"{alias}.tool_call_id"),
        "toolName": text(f"{alias}.tool_name"),
        "args": evidence(f"{alias}.args"),
        "result": evidence(f"{alias}.result"),
        "isError": boolean(f"{alias}.is_error"),
        "error": text(f"{alias}.error"),
        "state": text(f"{alias}.state"),
        "cycle": number(f"{alias}.cycle"),
        "index": number(f"{alias}.index"),
        "startedAt": moment(f"{alias}.started_at"),
        "timeRecorded": boolean(f"{alias}.time_recorded"),
        "durationMs": number(f"{alias}.duration_ms"),
    }


_CONTEXT = {
    "source": "source",
    "externalId": "external_id",
    "conversationId": "conversation_id",
    "contactId": "contact_id",
    "messageId": "message_id",
    "outboundMessageId": "outbound_message_id",
    "model": "model",
    "provider": "provider",
    "styleId": "style_id",
    "promptVersion": "prompt_version",
}


def context(*aliases: str) -> dict[str, str]:
    """Where it happened: of the first of these rows that there is. Calls and turns have these columns in common."""
    return {
        name: text(f"coalesce({', '.join(f'{alias}.{column}' for alias in aliases)})")
        for name, column in _CONTEXT.items()
    }


_CALLS = "agent_tool_calls"
_LABELS = "agent_tool_call_reviews r"
_LABEL = f"(SELECT label FROM {_LABELS} WHERE r.tenant_id = {_CALLS}.tenant_id AND r.call_id = {_CALLS}.id)"  # noqa: S608
CALL_RECORD = record(
    recordType=constant("tool_call"),
    schemaVersion="'1'",
    id=number(f"{_CALLS}.id"),
    turnId=number(f"{_CALLS}.turn_id"),
    **call(_CALLS),
    label=text(_LABEL),
    context=record(**context(_CALLS)),
)

FEEDBACK_RECORD = record(
    recordType=constant("tool_call_feedback"),
    schemaVersion="'1'",
    id=number("f.id"),
    label=text("f.label"),
    note=text("f.note"),
    correction=evidence("f.correction"),
    reviewer=record(id=number("u.id"), name=text("u.name"), email=text("u.email")),
    call=f"CASE WHEN c.id IS NULL THEN 'null' ELSE {record(id=number('c.id'), **call('c'))} END",
    context=record(
        turnId=number("t.id"),
        cycle=number("f.cycle"),
        **context("c", "t"),
        toolsetSha256=text("s.sha256"),
        messages=evidence("t.messages"),
    ),
    version=number("f.version"),
    createdAt=moment("f.created_at"),
    updatedAt=moment("f.updated_at"),
)

# Every join is by (tenant, id): PostgreSQL then walks the feedback in order and probes the rest by key.
FEEDBACK_QUERY = f"""
SELECT f.updated_at, f.id, {FEEDBACK_RECORD}
FROM agent_tool_call_feedback f
JOIN users u ON u.id = f.reviewer_id
JOIN agent_turns t ON t.tenant_id = f.tenant_id AND t.id = f.turn_id
LEFT JOIN agent_tool_calls c ON c.tenant_id = f.tenant_id AND c.id = f.call_id
LEFT JOIN agent_toolsets s ON s.tenant_id = f.tenant_id AND s.id = coalesce(c.toolset_id, t.toolset_id)
WHERE f.tenant_id = %(tenant)s
  AND (%(labels)s::text[] IS NULL OR f.label = ANY (%(labels)s))
  AND f.updated_at >= %(since)s AND f.updated_at < %(until)s
  AND (f.updated_at, f.id) > (%(after_at)s, %(after_id)s)
ORDER BY f.updated_at, f.id
LIMIT %(limit)s
"""  # noqa: S608  (names of ours; what was asked comes in as parameters)
