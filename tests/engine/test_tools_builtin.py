"""The booking link and questions to databases."""

import asyncio
import datetime as dt
import json
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from engine.errors import ToolError
from engine.text import TRUNCATED
from engine.tools import Registry, Safety, Tool, ToolContext, ToolOutcome
from engine.tools.booking import booking_tool, booking_url_fault
from engine.tools.database import Database, QueryError, QueryLimits, QueryResult, database_tool


def run(tool: Tool, arguments: dict[str, Any], **context: Any) -> ToolOutcome:
    return asyncio.run(Registry([tool]).run(tool.name, arguments, ToolContext(**context)))


@pytest.mark.parametrize(
    "url",
    [
        "https://calendly.com/ana/30min",
        "https://cal.com/ana/intro?month=2026-12",
        "https://tidycal.com/ana/call",
        "https://bücher.example/termin",
        "https://booking.example.com/#/new",
    ],
)
def test_the_booking_link_is_given_as_it_was_set(url: str) -> None:
    tool = booking_tool(url)

    assert json.loads(run(tool, {}).text) == {"url": url}
    assert (tool.name, tool.safety) == ("offer_booking_link", Safety.SAFE)
    assert run(tool, {"url": "https://attacker.example/"}).error == "invalid_arguments"


@pytest.mark.parametrize(
    "url",
    [
        "http://calendly.com/ana",
        "https://ana:pw@calendly.com/",
        "https://127.0.0.1/book",
        "https://booking.local/",
        "https://localhost/",
        "javascript:alert(1)",
        "calendly.com/ana",
        "https://calendly.com/a\nb",
        "https://calendly.com/" + "a" * 2_000,
        "",
    ],
)
def test_what_is_no_public_https_link_is_not_offered(url: str) -> None:
    assert booking_url_fault(url)
    with pytest.raises(ToolError, match="booking link"):
        booking_tool(url)


def shop(answer: Callable[[str, QueryLimits], QueryResult], *more: str, limits: QueryLimits | None = None) -> Tool:
    async def run_query(sql: str, bounds: QueryLimits) -> QueryResult:
        return answer(sql, bounds)

    names = ("shop", *more)
    return database_tool({name: Database(f"Tables of {name}.", run_query) for name in names}, limits)


def test_an_answer_has_columns_rows_and_whether_there_are_more() -> None:
    tool = shop(lambda sql, bounds: QueryResult(["n"], [[1], [2], [3]]), limits=QueryLimits(rows=2))
    outcome = run(tool, {"sql": "SELECT n FROM t"})

    assert json.loads(outcome.text) == {"columns": ["n"], "rows": [[1], [2]], "row_count": 2, "more_rows": True}
    assert outcome.details == {"rows": 2}


def test_the_sql_stays_out_of_the_answer_and_the_model_is_told_to_keep_it_there() -> None:
    tool = shop(lambda sql, bounds: QueryResult(["n"], [[1]]))

    assert "SELECT" not in run(tool, {"sql": "SELECT 1"}).text
    assert "only if the user asks" in tool.description
    assert "Tables of shop." in tool.description
    assert tool.safety is Safety.SAFE


def test_every_value_has_a_form_in_json() -> None:
    row = [
        *(
            None,
            True,
            7,
            1.5,
            float("nan"),
            Decimal("1.10"),
            dt.date(2026, 11, 30),
            dt.datetime(2026, 11, 30, tzinfo=dt.UTC),
        ),
        *(b"\0\1", UUID(int=1), {"a": Decimal(1)}, [1, 2], "x" * 600, "é\0", dt.timedelta(hours=1)),
    ]
    outcome = run(
        shop(lambda sql, bounds: QueryResult([str(i) for i in range(len(row))], [row])),
        {"sql": "x"},
        result_limit=9_999,
    )

    assert json.loads(outcome.text)["rows"] == [
        [
            *(None, True, 7, 1.5, "nan", "1.10", "2026-11-30", "2026-11-30T00:00:00+00:00", "<2 bytes>"),
            *("00000000-0000-0000-0000-000000000001", '{"a": "1"}', "[1, 2]", "x" * 500 + TRUNCATED, "é\0", "1:00:00"),
        ]
    ]


def test_a_query_gets_no_more_time_than_the_call_has_left() -> None:
    seen: list[QueryLimits] = []

    def answer(sql: str, bounds: QueryLimits) -> QueryResult:
        seen.append(bounds)
        return QueryResult([], [])

    run(shop(answer), {"sql": "x"}, deadline=time.monotonic() + 1)
    run(shop(answer), {"sql": "x"})

    assert 0.5 < seen[0].timeout_s <= 1
    assert seen[1] == QueryLimits()


def test_a_refused_query_is_told_to_the_model() -> None:
    def answer(sql: str, bounds: QueryLimits) -> QueryResult:
        raise QueryError('column "nmae" does not exist')

    outcome = run(shop(answer), {"sql": "SELECT nmae"})

    assert json.loads(outcome.text) == {"error": 'column "nmae" does not exist'}
    assert outcome.error == "query_failed"


def test_with_several_databases_the_model_names_one() -> None:
    tool = shop(lambda sql, bounds: QueryResult([], []), "crm")

    assert run(tool, {"sql": "x"}).error == "invalid_arguments"
    assert run(tool, {"sql": "x", "database": "postgres"}).error == "invalid_arguments"
    assert not run(tool, {"sql": "x", "database": "crm"}).is_error


@pytest.mark.parametrize("sql", ["", "x" * 10_001, 5, None])
def test_a_query_has_a_size(sql: Any) -> None:
    assert run(shop(lambda sql, bounds: QueryResult([], [])), {"sql": sql}).error == "invalid_arguments"


def test_without_a_database_there_is_no_tool() -> None:
    with pytest.raises(ToolError, match="at least one database"):
        database_tool({})
