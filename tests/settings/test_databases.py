"""Databases of the operator: asked by agents in read-only transactions, where a tenant switched them on."""

import asyncio
import time

import pytest
from django.core.exceptions import ValidationError

from engine.tools import Registry, ToolContext
from quality.turns.resolver import Conversation, resolve_tools
from tenants import databases
from tenants.scope import tenant_scope
from tests import environment


@pytest.fixture
def shop(settings):
    settings.TOOL_DATABASES = {"shop": {"dsn": environment.dsn("app"), "description": "Cache entries of the shop."}}


@pytest.fixture
def chosen(shop, tenant, member):
    with tenant_scope(tenant):
        databases.choose(["shop"], actor=member("admin").user)


def ask(tenant, sql: str):
    box = resolve_tools(tenant, Conversation(run="r"))
    return asyncio.run(
        Registry(box.tools).run("ask_database", {"sql": sql}, ToolContext(deadline=time.monotonic() + 5))
    )


def test_a_question_is_answered(tenant, chosen):
    answer = ask(tenant, "SELECT 7 AS number, 'ö' AS letter;")
    assert '"columns": ["number", "letter"], "rows": [[7, "ö"]]' in answer.text


def test_many_rows_are_cut_and_said_to_be(tenant, chosen):
    answer = ask(tenant, "SELECT generate_series(1, 100000)")
    assert '"row_count": 100, "more_rows": true' in answer.result


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM cache_entries",
        "INSERT INTO cache_entries VALUES ('k', 'v', now())",
        "SELECT 1; DELETE FROM cache_entries",
        "WITH x AS (DELETE FROM cache_entries RETURNING 1) SELECT * FROM x",
        "COMMIT",
        "SET TRANSACTION READ WRITE",
        "SELECT set_config('transaction_read_only', 'off', false)",
        "DROP TABLE cache_entries",
        "SELECT nonsense",
        "",
        "SELECT '\0'",
    ],
)
def test_what_is_no_question_is_refused_and_changes_nothing(tenant, chosen, sql):
    from django.db import connection

    with connection.cursor() as cursor:
        cursor.execute("INSERT INTO cache_entries VALUES ('canary', 'v', now() + interval '1 day')")
    assert ask(tenant, sql).is_error
    with connection.cursor() as cursor:
        cursor.execute("SELECT count(*) FROM cache_entries WHERE cache_key IN ('canary', 'k')")
        assert cursor.fetchone() == (1,)


def test_a_long_question_is_cut_off(tenant, chosen):
    started = time.monotonic()
    answer = ask(tenant, "SELECT pg_sleep(30)")
    assert "took longer than" in answer.text
    assert time.monotonic() - started < 7


def test_an_error_tells_neither_address_nor_password(tenant, chosen, settings):
    settings.TOOL_DATABASES["shop"]["dsn"] = "postgresql://reader:hush@127.0.0.1:1/shop"
    answer = ask(tenant, "SELECT 1")
    assert "the database does not answer" in answer.text
    assert "hush" not in repr(answer)


def test_it_is_offered_only_where_it_was_switched_on(shop, tenant, other_tenant, member):
    assert resolve_tools(tenant, Conversation(run="r")).tools == ()
    with tenant_scope(tenant), pytest.raises(ValidationError, match="There is no database other"):
        databases.choose(["other"], actor=member("admin").user)
    with tenant_scope(tenant):
        databases.choose(["shop"], actor=member("admin").user)
    (tool,) = resolve_tools(tenant, Conversation(run="r")).tools
    assert "Cache entries of the shop." in tool.description
    assert resolve_tools(other_tenant, Conversation(run="r")).tools == ()


def test_a_database_that_the_operator_took_away_is_gone(tenant, chosen, settings):
    settings.TOOL_DATABASES = {}
    from quality.turns.resolver import _plans

    _plans.clear()  # the operator's settings change with a restart
    assert resolve_tools(tenant, Conversation(run="r")).tools == ()


def test_the_page_switches_them(browse, shop, tenant):
    client = browse()
    path = "/t/acme/tools/databases/"
    assert "The databases are chosen" in client.post(path, {"name": "shop"}, follow=True).text
    assert "There is no database x" in client.post(path, {"name": "x"}, follow=True).text
    assert browse("operator").post(path, {"name": "shop"}).status_code == 403
    assert 'value="shop" checked' in client.get("/t/acme/tools/").text.replace("\n", " ")
