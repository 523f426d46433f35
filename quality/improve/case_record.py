"""A case as its exported line: one JSON object in a fixed order, with evidence as it is spelled in the database.

`quality.export_sql` writes the same bytes in SQL; a test compares them.
"""

import datetime as dt
import json
from typing import Any

from quality.export_lines import one_line
from quality.models import Case

RECORD_TYPE = "tool_call_regression_case"
SCHEMA_VERSION = 1


def record_of(case: Case) -> str:
    """The case as a line of an export, without the line break."""
    record = _object(
        recordType=_plain(RECORD_TYPE),
        schemaVersion=_plain(SCHEMA_VERSION),
        id=_plain(case.ref),
        version=_plain(case.version),
        status=_plain(case.status),
        toolName=_plain(case.tool_name),
        label=_plain(case.label),
        tags=_plain(case.tags),
        input=_object(
            args=_evidence(case.args),
            messages=_evidence(case.messages),
            tools=_evidence(case.tools),
            now=_moment(case.now),
        ),
        observed=_object(
            result=_evidence(case.result),
            isError=_plain(case.is_error),
            error=_plain(case.error),
            cycle=_plain(case.cycle),
            index=_plain(case.index),
        ),
        expected=_object(behavior=_plain(case.behavior), expectation=_evidence(case.expectation)),
        context=_evidence(case.context),
        stubs=_evidence(case.stubs),
        createdAt=_moment(case.created_at),
        updatedAt=_moment(case.updated_at),
    )
    return one_line(record).removesuffix("\n")


def moment_text(moment: dt.datetime) -> str:
    """A time in UTC, to the microsecond."""
    return f"{moment.astimezone(dt.UTC).replace(tzinfo=None).isoformat(timespec='microseconds')}Z"


def _object(**members: str) -> str:
    return "{" + ",".join(f'"{name}":{value}' for name, value in members.items()) + "}"


def _plain(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _evidence(text: str | None) -> str:
    return "null" if text is None else text


def _moment(moment: dt.datetime | None) -> str:
    return "null" if moment is None else _plain(moment_text(moment))
