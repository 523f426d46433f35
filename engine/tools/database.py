"""`ask_database`: read-only questions to the databases that an operator configured.

The query runs elsewhere, handed in as `run_query`: it opens a read-only transaction with a statement timeout. Here is
what the model is told of the databases, and what it gets to see of an answer.
"""

import datetime as dt
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Any

from engine.errors import EngineError, ToolError
from engine.text import truncate
from engine.tools.base import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome, succeeded, told_in_json

MAX_SQL = 10_000  # characters


@dataclass(frozen=True, slots=True)
class QueryLimits:
    """What one query may cost. The runner keeps to `rows` and `timeout_s`; cells are cut here."""

    rows: int = 100
    timeout_s: float = 5.0
    cell_chars: int = 500


@dataclass(frozen=True, slots=True)
class QueryResult:
    """The first rows of an answer; `is_cut`: there are more."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    is_cut: bool = False


class QueryError(EngineError):
    """A query that the database refused, in words fit for the model: no DSN, no host."""


type RunQuery = Callable[[str, QueryLimits], Awaitable[QueryResult]]


@dataclass(frozen=True, slots=True)
class Database:
    """A database to ask. `description` tells the model what is in it: tables, columns, what they mean."""

    description: str
    run_query: RunQuery


def database_tool(databases: Mapping[str, Database], limits: QueryLimits | None = None) -> FunctionTool:
    """One tool for all databases that a tenant may use. Raises `ToolError` if there is none."""
    if not databases:
        raise ToolError("ask_database needs at least one database; add one to the operator's settings")
    bounds = limits or QueryLimits()

    async def ask(arguments: Arguments, context: ToolContext) -> ToolOutcome:
        database = databases[arguments.get("database", next(iter(databases)))]
        try:
            result = await database.run_query(
                arguments["sql"], replace(bounds, timeout_s=min(bounds.timeout_s, context.time_left_s()))
            )
        except QueryError as exc:
            return told_in_json(str(exc), context, error="query_failed")
        rows = result.rows[: bounds.rows]
        is_cut = result.is_cut or len(result.rows) > len(rows)
        return succeeded(_as_json(result.columns, rows, is_cut, bounds), context, details={"rows": len(rows)})

    return FunctionTool(
        "ask_database", _description(databases, bounds), _parameters(databases), ask, safety=Safety.SAFE
    )


def _description(databases: Mapping[str, Database], limits: QueryLimits) -> str:
    listed = "\n\n".join(f"Database {name}:\n{database.description}" for name, database in databases.items())
    return (
        "Answer a question about data with one read-only SQL query (a single SELECT). At most "
        f"{limits.rows} rows come back, so aggregate and sort in SQL. Give the user the finding, and the SQL only if "
        f"the user asks for it.\n\n{listed}"
    )


def _parameters(databases: Mapping[str, Database]) -> dict[str, Any]:
    properties: dict[str, Any] = {
        "sql": {"type": "string", "minLength": 1, "maxLength": MAX_SQL, "description": "One SELECT statement."}
    }
    required = ["sql"]
    if len(databases) > 1:
        properties["database"] = {"type": "string", "enum": list(databases)}
        required.append("database")
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def _as_json(columns: Sequence[str], rows: Sequence[Sequence[Any]], is_cut: bool, limits: QueryLimits) -> str:
    answer = {
        "columns": list(columns),
        "rows": [[_cell(value, limits.cell_chars) for value in row] for row in rows],
        "row_count": len(rows),
        "more_rows": is_cut,
    }
    return json.dumps(answer, ensure_ascii=False)


def _cell(value: Any, max_chars: int) -> Any:
    """A value as JSON has it; what JSON has no form for as text. Decimals stay exact, so they are text, too."""
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    if isinstance(value, bytes | bytearray | memoryview):
        return f"<{len(value)} bytes>"
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, dt.date | dt.time):
        return value.isoformat()
    if isinstance(value, dict | list | tuple):
        return truncate(json.dumps(value, ensure_ascii=False, default=str), max_chars)
    return truncate(str(value), max_chars)
