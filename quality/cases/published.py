"""The published JSON Schemas of what leaves and enters the lab.

python -m quality.cases.published docs/schemas     writes them
"""

import json
import sys
from pathlib import Path
from typing import Any, Final

from quality.cases.schema import EXPECTATION_SCHEMA
from quality.cases.wording import TEXT, WHOLE, Schema, array_of, object_of

LABELS: Final = ("good_reply", "wrong_tool", "missing_tool", "bad_args", "other")
STATUSES: Final = ("active", "archived")
SCHEMA_VERSION: Final = 1

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_EXPECTATION = EXPECTATION_SCHEMA["$id"]
_TEXT_OR_NULL: Schema = {"type": ["string", "null"]}
_WHOLE_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}
_FLAG_OR_NULL: Schema = {"type": ["boolean", "null"]}
_TIME: Schema = {"type": "string", "pattern": r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]+(Z|[+-][0-9]{2}:[0-9]{2})$"}
_TIME_OR_NULL: Schema = {**_TIME, "type": ["string", "null"]}
_EVIDENCE: Schema = {"description": "JSON as it was recorded; what was no JSON is text."}
_PERSON: Schema = {
    "description": "Who: a name, or an object with id, name and email.",
    "type": ["object", "string", "null"],
}


def _record(kind: str, title: str, members: Schema, *, required: list[str]) -> Schema:
    """A record of an export. Members that are not listed may be there: readers pass over what they do not know."""
    return {
        "$schema": _DIALECT,
        "$id": f"urn:quality-lab:schema:{kind}:{SCHEMA_VERSION}",
        "title": title,
        "type": "object",
        "properties": {"recordType": {"const": kind}, "schemaVersion": {"const": SCHEMA_VERSION}, **members},
        "required": ["recordType", "schemaVersion", *required],
    }


def _open_object(members: Schema, *, required: tuple[str, ...] = (), or_null: bool = False) -> Schema:
    schema: Schema = {"type": ["object", "null"] if or_null else "object", "properties": members}
    return {**schema, "required": list(required)} if required else schema


_STUB = object_of(
    {
        "tool": TEXT,
        "args": {
            "type": "object",
            "additionalProperties": {"$ref": f"{_EXPECTATION}#/$defs/matcher"},
            "description": "Which calls it answers: matchers by the name of the argument. Without them any call.",
        },
        "arguments": {**_EVIDENCE, "description": "Of a recorded call: what it was made with; it answers equal calls."},
        "result": _EVIDENCE,
        "isError": {"type": "boolean"},
    },
    required=["tool", "result"],
    description="A result that is served on replay: recorded (with `arguments`), or written (with or without `args`).",
)

CASE_SCHEMA: Final[Schema] = {
    **_record(
        "tool_call_regression_case",
        "A regression case",
        {
            "id": {"type": "string", "pattern": "^REG-[1-9][0-9]*$"},
            "version": {"type": "integer", "minimum": 1},
            "status": {"enum": list(STATUSES)},
            "toolName": {**_TEXT_OR_NULL, "description": "The tool that was called; null where none was."},
            "label": {"enum": list(LABELS)},
            "input": _open_object(
                {
                    "args": _EVIDENCE,
                    "messages": {
                        "description": "What the model read, as recorded.",
                        "type": ["array", "string", "null"],
                    },
                    "tools": {"description": "The tools offered, as recorded.", "type": ["array", "string", "null"]},
                    "now": _TIME_OR_NULL,
                },
                required=("args",),
            ),
            "observed": _open_object(
                {
                    "result": _EVIDENCE,
                    "isError": _FLAG_OR_NULL,
                    "error": _TEXT_OR_NULL,
                    "cycle": _WHOLE_OR_NULL,
                    "index": _WHOLE_OR_NULL,
                },
                or_null=True,
            ),
            "expected": _open_object(
                {
                    "behavior": {**TEXT, "description": "What is right, for people."},
                    "expectation": {"$ref": _EXPECTATION},
                },
                required=("behavior", "expectation"),
            ),
            "context": _open_object(
                {
                    "conversationId": _TEXT_OR_NULL,
                    "messageId": _TEXT_OR_NULL,
                    "styleId": _TEXT_OR_NULL,
                    "model": _TEXT_OR_NULL,
                    "source": _TEXT_OR_NULL,
                    "proposalId": {"type": ["integer", "string", "null"]},
                    "reviewer": _PERSON,
                }
            ),
            "stubs": {**array_of(_STUB, most=1_000), "type": ["array", "null"]},
            "createdAt": _TIME,
            "updatedAt": _TIME,
        },
        required=[
            "id",
            "version",
            "status",
            "toolName",
            "label",
            "input",
            "observed",
            "expected",
            "createdAt",
            "updatedAt",
        ],
    ),
    "$defs": {"expectation": EXPECTATION_SCHEMA},
}

FEEDBACK_SCHEMA: Final[Schema] = _record(
    "tool_call_feedback",
    "What one reviewer says of one call, or of a reply without a call",
    {
        "id": {"type": "integer"},
        "label": {"enum": list(LABELS)},
        "note": _TEXT_OR_NULL,
        "correction": _open_object(
            {
                "tool": {"type": "string", "description": "The tool that should have been called."},
                "offered": {"type": "boolean", "description": "Was that tool among those offered?"},
                "arguments": {"type": "object", "description": "The arguments that would have been right."},
                "position": {
                    **_open_object({"cycle": WHOLE, "index": WHOLE}),
                    "description": "Where a call was missing; with missing_tool only.",
                },
            },
            or_null=True,
        ),
        "faults": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Kinds of fault: arg:<pointer>, tool:<name>, missing:<name>.",
        },
        "guidelineVersion": {**_WHOLE_OR_NULL, "description": "The guidelines that it was given under."},
        "reviewer": _PERSON,
        "call": _open_object(
            {
                "id": {"type": "integer"},
                "toolCallId": _TEXT_OR_NULL,
                "toolName": _TEXT_OR_NULL,
                "args": _EVIDENCE,
                "result": _EVIDENCE,
                "isError": _FLAG_OR_NULL,
                "error": _TEXT_OR_NULL,
                "cycle": _WHOLE_OR_NULL,
                "index": _WHOLE_OR_NULL,
                "startedAt": _TIME_OR_NULL,
            },
            required=("id", "toolName", "args"),
            or_null=True,
        ),
        "context": _open_object(
            {"turnId": {"type": "integer"}, "cycle": _WHOLE_OR_NULL, "toolsetSha256": _TEXT_OR_NULL}
        ),
        "version": {"type": "integer"},
        "createdAt": _TIME,
        "updatedAt": _TIME,
    },
    required=["id", "label", "reviewer", "call", "context", "createdAt", "updatedAt"],
)

END_SCHEMA: Final[Schema] = {
    "$schema": _DIALECT,
    "$id": f"urn:quality-lab:schema:end:{SCHEMA_VERSION}",
    "title": "The last line of an export: without it the file is cut",
    "type": "object",
    "properties": {
        "recordType": {"const": "_end"},
        "count": {**WHOLE, "description": "Records before this line."},
        "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$", "description": "Of all bytes before this line."},
        "nextCursor": {**_TEXT_OR_NULL, "description": "Where the next page begins; null: this was the last."},
    },
    "required": ["recordType", "count", "sha256"],
}

SCHEMAS: Final[dict[str, Schema]] = {
    "expectation.json": EXPECTATION_SCHEMA,
    "tool_call_regression_case.json": CASE_SCHEMA,
    "tool_call_feedback.json": FEEDBACK_SCHEMA,
    "end.json": END_SCHEMA,
}


def text_of(schema: Any) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main(folder: str) -> None:
    for name, schema in SCHEMAS.items():
        Path(folder, name).write_text(text_of(schema), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
