"""The SQL of exports: what writes a record as JSON text, and which rows there are.

Evidence columns hold JSON text and are embedded as they are. Beside each record stands its *stamp*: a text that is
another one whenever any byte of the record would be. What a row holds depends on the transaction that wrote it (`xmin`)
and on nothing else: rows are never changed in place, and PostgreSQL keeps both until some later write. `ctid`, the
place of that version, stands against the day when numbers of transactions begin anew. Of rows that also change for
reasons of their own (a user signs in) the stamp holds the few columns that are written.
"""

from dataclasses import dataclass, replace

from quality.review.queues.waiting import hidden_row


def text(column: str) -> str:
    return f"coalesce(to_json({column})::text, 'null')"


def number(column: str) -> str:
    return f"coalesce({column}::text, 'null')"


boolean = number


def evidence(column: str) -> str:
    return f"coalesce({column}, 'null')"


def moment(column: str) -> str:
    """A time in UTC, to the microsecond."""
    return f"""coalesce('"' || {clock(column)} || '"', 'null')"""


def clock(column: str) -> str:
    """The same as bare text, or null."""
    return f"""to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""


def array(column: str) -> str:
    """An array of text."""
    return f"coalesce(array_to_json({column})::text, 'null')"


def constant(value: str) -> str:
    return f"""'"{value}"'"""


def record(**members: str) -> str:
    """An object; its members are expressions of JSON text that are never null, in this order."""
    parts = [
        f"""'{"," if place else "{"}"{name}":' || {value}""" for place, (name, value) in enumerate(members.items())
    ]
    return f"{' || '.join(parts)} || '}}'"


def stamp(*aliases: str) -> str:
    """The versions of these rows as text; of a row that there is not, nothing."""
    parts = (f"coalesce({alias}.xmin::text || {alias}.ctid::text, '')" for alias in aliases)
    return " || ' ' || ".join(parts)


def person(alias: str) -> str:
    """A user, or null."""
    known = record(id=number(f"{alias}.id"), name=text(f"{alias}.name"), email=text(f"{alias}.email"))
    return f"CASE WHEN {alias}.id IS NULL THEN 'null' ELSE {known} END"


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
LABEL = f"(SELECT label FROM {_LABELS} WHERE r.tenant_id = {_CALLS}.tenant_id AND r.call_id = {_CALLS}.id)"  # noqa: S608


def label_seen_by(viewer: int) -> str:
    """A call's label for somebody from whom blind queues keep others' labels: there it is his own."""
    own = (
        f"(SELECT label FROM agent_tool_call_feedback f WHERE f.tenant_id = {_CALLS}.tenant_id "  # noqa: S608
        f"AND f.call_id = {_CALLS}.id AND f.reviewer_id = {int(viewer)})"
    )
    hides = f"EXISTS (SELECT FROM {_LABELS} WHERE r.tenant_id = {_CALLS}.tenant_id AND r.call_id = {_CALLS}.id "
    hides += f"AND {hidden_row('r').replace('%(viewer)s', str(int(viewer)))})"
    return f"CASE WHEN {hides} THEN {own} ELSE {LABEL} END"


def call_record(label: str) -> str:
    """A call with what the expression `label` says of it."""
    return record(
        recordType=constant("tool_call"),
        schemaVersion="'1'",
        id=number(f"{_CALLS}.id"),
        turnId=number(f"{_CALLS}.turn_id"),
        **call(_CALLS),
        label=text(label),
        context=record(**context(_CALLS)),
    )


def call_stamp(label: str) -> str:
    return f"{stamp(_CALLS)} || coalesce({label}, '')"


FEEDBACK_RECORD = record(
    recordType=constant("tool_call_feedback"),
    schemaVersion="'1'",
    id=number("f.id"),
    label=text("f.label"),
    note=text("f.note"),
    correction=evidence("f.correction"),
    faults=array("f.faults"),
    guidelineVersion=number("f.guideline_version"),
    reviewer=person("u"),
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
FEEDBACK_STAMP = f"{stamp('f', 't', 'c')} || {person('u')} || coalesce(s.sha256, '')"

# For people with a spreadsheet; each cell is text or null.
FEEDBACK_CELLS = {
    "id": "f.id::text",
    "label": "f.label",
    "toolName": "coalesce(c.tool_name, f.tool_name)",
    "note": "f.note",
    "correction": "f.correction",
    "faults": "array_to_string(f.faults, ' ')",
    "guidelineVersion": "f.guideline_version::text",
    "reviewerName": "u.name",
    "reviewerEmail": "u.email",
    "callId": "c.id::text",
    "turnId": "t.id::text",
    "cycle": "f.cycle::text",
    "index": "c.index::text",
    "args": "c.args",
    "result": "c.result",
    "isError": "c.is_error::text",
    "error": "c.error",
    "durationMs": "c.duration_ms::text",
    **{name: f"coalesce(c.{column}, t.{column})" for name, column in _CONTEXT.items()},
    "startedAt": clock("c.started_at"),
    "createdAt": clock("f.created_at"),
    "updatedAt": clock("f.updated_at"),
}
_ROW = f"ARRAY[{', '.join(f'({cell})::text' for cell in FEEDBACK_CELLS.values())}]"

CASE_RECORD = record(
    recordType=constant("tool_call_regression_case"),
    schemaVersion="'1'",
    id="to_json('REG-' || k.number)::text",
    version=number("k.version"),
    status=text("k.status"),
    toolName=text("k.tool_name"),
    label=text("k.label"),
    tags=array("k.tags"),
    input=record(
        args=evidence("k.args"), messages=evidence("k.messages"), tools=evidence("k.tools"), now=moment("k.now")
    ),
    observed=record(
        result=evidence("k.result"),
        isError=boolean("k.is_error"),
        error=text("k.error"),
        cycle=number("k.cycle"),
        index=number("k.index"),
    ),
    expected=record(behavior=text("k.behavior"), expectation=evidence("k.expectation")),
    context=evidence("k.context"),
    stubs=evidence("k.stubs"),
    createdAt=moment("k.created_at"),
    updatedAt=moment("k.updated_at"),
)

_RESOLUTION = record(kind=text("p.resolution_kind"), ref=text("p.resolution_ref"), note=text("p.resolution_note"))
PROPOSAL_RECORD = record(
    recordType=constant("tool_call_improvement_proposal"),
    schemaVersion="'1'",
    id=number("p.id"),
    version=number("p.version"),
    state=text("p.state"),
    label=text("p.label"),
    toolName=text("p.tool_name"),
    styleId=text("p.style_id"),
    fault=text("p.fault"),
    suggestedKind=text("p.suggested_kind"),
    title=text("p.title"),
    reason=text("p.reason"),
    resolution=f"CASE WHEN p.resolution_kind = '' THEN 'null' ELSE {_RESOLUTION} END",
    decidedBy=person("d"),
    decidedAt=moment("p.decided_at"),
    createdBy=person("m"),
    createdAt=moment("p.created_at"),
    updatedAt=moment("p.updated_at"),
)


@dataclass(frozen=True, kw_only=True)
class Table:
    """One kind of rows. `place` is a time and a number, `order` says by which of them they are sorted so that no two
    rows are equal. The parameters are tenant, after_at, after_id, limit and those of the filter."""

    record: str
    stamp: str
    place: str
    order: str
    source: str

    def select(self, what: str, *, is_sorted: bool = True) -> str:
        sort = f" ORDER BY {self.order}" if is_sorted else ""
        return f"SELECT {self.place}, {what} FROM {self.source}{sort} LIMIT %(limit)s"  # noqa: S608

    def count(self) -> str:
        return f"SELECT count(*) FROM (SELECT 1 FROM {self.source} LIMIT %(limit)s) counted"  # noqa: S608


# Every join is by (tenant, id): PostgreSQL then walks the rows in order and probes the rest by key.
FEEDBACK = Table(
    record=FEEDBACK_RECORD,
    stamp=FEEDBACK_STAMP,
    place="f.updated_at, f.id",
    order="f.updated_at, f.id",
    source="""agent_tool_call_feedback f
JOIN users u ON u.id = f.reviewer_id
JOIN agent_turns t ON t.tenant_id = f.tenant_id AND t.id = f.turn_id
LEFT JOIN agent_tool_calls c ON c.tenant_id = f.tenant_id AND c.id = f.call_id
LEFT JOIN agent_toolsets s ON s.tenant_id = f.tenant_id AND s.id = coalesce(c.toolset_id, t.toolset_id)
WHERE f.tenant_id = %(tenant)s
  AND (%(labels)s::text[] IS NULL OR f.label = ANY (%(labels)s))
  AND f.updated_at >= %(since)s AND f.updated_at < %(until)s
  AND (f.updated_at, f.id) > (%(after_at)s, %(after_id)s)"""
    f" AND NOT {hidden_row('f', 'reviewer_id')}",
)
FEEDBACK_SHEET = replace(FEEDBACK, record=_ROW)

CASES = Table(
    record=CASE_RECORD,
    stamp=stamp("k"),
    place="k.created_at, k.number",
    order="k.number",
    source="""agent_tool_call_regression_cases k
WHERE k.tenant_id = %(tenant)s
  AND (%(statuses)s::text[] IS NULL OR k.status = ANY (%(statuses)s))
  AND (%(labels)s::text[] IS NULL OR k.label = ANY (%(labels)s))
  AND (%(tools)s::text[] IS NULL OR k.tool_name = ANY (%(tools)s))
  AND k.number > %(after_id)s""",
)

PROPOSALS = Table(
    record=PROPOSAL_RECORD,
    stamp=f"{stamp('p')} || {person('d')} || {person('m')}",
    place="p.created_at, p.id",
    order="p.id",
    source="""agent_tool_call_improvement_proposals p
JOIN users m ON m.id = p.created_by_id
LEFT JOIN users d ON d.id = p.decided_by_id
WHERE p.tenant_id = %(tenant)s
  AND (%(statuses)s::text[] IS NULL OR p.state = ANY (%(statuses)s))
  AND (%(labels)s::text[] IS NULL OR p.label = ANY (%(labels)s))
  AND (%(tools)s::text[] IS NULL OR p.tool_name = ANY (%(tools)s))
  AND p.id > %(after_id)s""",
)
