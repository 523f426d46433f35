"""Exports are masked for who ordered them: each kind, as lines and as cells, at once and in the background."""

import csv
import hashlib
import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from django.contrib.postgres.fields import ArrayField
from django.test import Client
from django.urls import reverse

from quality import export, export_jobs
from quality.calls import CallFilter
from quality.export import CaseFilter, FeedbackFilter, Order, Part, ProposalFilter, Reader
from quality.export_sql import FEEDBACK_CELLS
from quality.improve.case_import import import_cases
from quality.models import Case, Export, Feedback, Proposal, ToolCall, Turn
from quality.models.base import Masked
from quality.privacy.exported import CELLS, RECORDS
from tenants.access import change_role
from tenants.masking.masker import MARK
from tenants.masks import save_rule
from tenants.models import MaskRule, Membership, Tenant
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, FeedbackFactory, ProposalFactory, ToolCallFactory, TurnFactory

MAIL, CODE = "zk.canary@example.com", "zk-open-sesame"
DATA = json.dumps({"n": 1.10, "mail": MAIL, "password": CODE, "break": "a\u2028b\tc"}, ensure_ascii=False, indent=1)
SAID = f"{MAIL} said “{CODE}”"
MESSAGES = json.dumps([{"role": "user", "content": SAID}, {"role": "tool", "tool_call_id": "c", "content": DATA}])
ORDERS: dict[str, Order] = {
    "calls": Order(wanted=CallFilter()),
    "feedback": Order(wanted=FeedbackFilter()),
    "sheet": Order(wanted=FeedbackFilter(), as_csv=True),
    "cases": Order(wanted=CaseFilter()),
    "proposals": Order(wanted=ProposalFilter()),
}


@pytest.fixture
def admin(tenant: Tenant, member: Callable[..., Membership]) -> Membership:
    found = member("admin")
    with tenant_scope(tenant):
        plant()
    return found


def plant() -> None:
    """A row of each kind with something to be masked in each column that is masked."""
    turn = TurnFactory(contact_id=MAIL, messages=MESSAGES)
    call = ToolCallFactory(turn=turn, args=DATA, result=DATA, error=SAID, is_error=True, contact_id=MAIL)
    correction = json.dumps({"arguments": json.loads(DATA)})
    for item in ({"call": call, "turn": turn}, {"call": None, "turn": TurnFactory(contact_id=MAIL, messages=MESSAGES)}):
        FeedbackFactory(**item, note=SAID, correction=correction)
    step = {"tool": "get_weather", "args": {"password": {"equal": CODE}, "mail": {"equal": MAIL}}}
    CaseFactory(
        args=DATA, messages=MESSAGES, result=DATA, error=SAID, behavior=SAID, context=json.dumps({"reviewer": MAIL}),
        stubs=json.dumps([{"tool": "get_weather", "arguments": json.loads(DATA), "result": DATA}]),
        expectation=json.dumps({"version": 1, "calls": {"mode": "first", "steps": [step]}}),
    )  # fmt: skip
    ProposalFactory(reason=SAID, resolution_kind="prompt_patch", resolution_ref="r", resolution_note=SAID)


def add_rules(tenant: Tenant, admin: Membership, **fields: Any) -> None:
    with tenant_scope(tenant):
        for name, (kind, expression) in {"mail": ("pattern", "preset:email"), "code": ("key", "password")}.items():
            rule = MaskRule.objects.filter(name=name).first() or MaskRule(name=name, kind=kind, expression=expression)
            for field, value in fields.items():
                setattr(rule, field, value)
            save_rule(rule, actor=admin.user)
        tenant.refresh_from_db()


def written(tenant: Tenant, admin: Membership, order: Order) -> bytes:
    return b"".join(export.lines(order, tenant_id=tenant.pk, reader=Reader(actor=admin.user)))


def records(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()[:-1]]


@pytest.mark.parametrize("name", ORDERS)
def test_each_kind(tenant, admin, name):
    plain = written(tenant, admin, ORDERS[name]).decode()
    assert MAIL in plain
    add_rules(tenant, admin, masks_exports=True)
    masked = written(tenant, admin, ORDERS[name]).decode()
    assert MAIL not in masked.replace(admin.user.email, "")
    assert name == "proposals" or CODE not in masked  # there it stands in prose alone, which no place tells of
    assert MARK.search(masked)
    if name == "sheet":
        rows = list(csv.DictReader(io.StringIO(masked.removeprefix("\ufeff"))))
        assert [row["toolName"] for row in rows] == [row["toolName"] for row in _sheet(plain)]
        return
    *lines, trailer = masked.encode().splitlines(keepends=True)
    end = json.loads(trailer)
    assert end["count"] == len(lines) == len(plain.splitlines()) - 1
    assert end["sha256"] == hashlib.sha256(b"".join(lines)).hexdigest()


def _sheet(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text.removeprefix("\ufeff"))))


def test_what_is_not_masked_stays_byte_for_byte(tenant, admin):
    plain = written(tenant, admin, ORDERS["calls"])
    with tenant_scope(tenant):
        rule = MaskRule(name="none", kind="key", expression="nothing", masks_exports=True)
        save_rule(rule, actor=admin.user)
    assert written(tenant, admin, ORDERS["calls"]) == plain
    add_rules(tenant, admin, masks_exports=True)
    masked = written(tenant, admin, ORDERS["calls"])
    assert b'"n": 1.1,' in masked  # as it was spelled
    assert rb"a\u2028b\tc" in masked


@pytest.mark.parametrize(
    ("rule", "is_masked"),
    [
        ({"seen_by": "admin"}, False),
        ({"seen_by": "nobody"}, True),
        ({"seen_by": "operator"}, False),
        ({"seen_by": "operator", "masks_exports": True}, True),
        ({"seen_by": "nobody", "is_enabled": False}, False),
    ],
)
def test_it_follows_what_its_orderer_may_see(tenant, admin, api, rule, is_masked):
    add_rules(tenant, admin, **rule)
    bodies = [written(tenant, admin, ORDERS["calls"])]
    streamed = api("export:read", member=admin).get(reverse("api-tool-calls-export"))
    bodies.append(b"".join(streamed.streaming_content))
    browser = Client()
    browser.force_login(admin.user)
    bodies.append(b"".join(browser.get(reverse("export-calls", args=[tenant.slug])).streaming_content))
    bodies.append(browser.get(reverse("export", args=[tenant.slug])).content)  # its example
    assert [MAIL.encode() not in body for body in bodies] == [is_masked] * 4


def test_the_page_shows_an_example_as_it_will_be(tenant, admin):
    add_rules(tenant, admin, masks_exports=True)
    with tenant_scope(tenant):
        line = export.example(ORDERS["feedback"], Reader(actor=admin.user))
    assert line is not None
    assert MAIL not in line
    assert MARK.search(line)


def test_a_part_goes_on_where_it_ended(tenant, admin):
    with tenant_scope(tenant):
        ToolCallFactory.create_batch(3, args=DATA)
    add_rules(tenant, admin, masks_exports=True)
    whole = records(written(tenant, admin, ORDERS["calls"]))
    parts: list[Any] = []
    cursor = None
    while True:
        body = written(tenant, admin, Order(wanted=CallFilter(), part=Part(limit=2, cursor=cursor)))
        parts += records(body)
        following = json.loads(body.splitlines()[-1])["nextCursor"]
        if not following:
            break
        cursor = export.Cursor.read(following)
    assert parts == whole


def test_the_tag_follows_the_rules(tenant, admin, api):
    client = api("export:read", member=admin)

    def ask(tag: str = "") -> Any:
        return client.get(reverse("api-tool-calls-export"), **({"HTTP_IF_NONE_MATCH": tag} if tag else {}))

    with ExitStack() as open_answers:
        first = ask()
        open_answers.callback(first.close)
        assert ask(first["ETag"]).status_code == 304
        add_rules(tenant, admin, masks_exports=True)
        second = ask(first["ETag"])
        open_answers.callback(second.close)
        assert second.status_code == 200
        assert second["ETag"] != first["ETag"]
        assert ask(second["ETag"]).status_code == 304


@pytest.mark.parametrize("name", ["calls", "sheet"])
def test_a_file_is_masked_by_the_rules_of_when_it_is_made(tenant, admin, name):
    with tenant_scope(tenant):
        job = export_jobs.order_export(ORDERS[name], actor=admin.user)
    add_rules(tenant, admin, seen_by="nobody")
    export_jobs.run_export(job.pk, tenant_id=tenant.pk)
    with tenant_scope(tenant):
        made = Export.objects.select_related("created_by").get(pk=job.pk)
    body = export_jobs.stored_path(made.stored_as).read_bytes()
    assert MAIL.encode() not in body
    told = export_jobs.manifest(made)
    assert told["masks"] == ["code", "mail"]
    assert told["sha256"] == hashlib.sha256(body).hexdigest()


def test_masked_cases_come_back_as_they_are(tenant, other_tenant, admin):
    add_rules(tenant, admin, masks_exports=True)
    body = written(tenant, admin, ORDERS["cases"])
    with tenant_scope(other_tenant):
        report = import_cases(body.splitlines(keepends=True), by=admin.user, require_trailer=True)
        assert (report.num_created, report.refused) == (1, [])
        assert {match[1] for match in MARK.finditer(Case.objects.get().args or "")} == {"mail", "code"}


# --- nothing is forgotten -------------------------------------------------------------------------------------------


def _leaves(places: Any, under: str = "") -> Iterator[str]:
    for name, inner in places.items():
        yield from [name] if callable(inner) else _leaves(inner, name)


def test_each_masked_column_that_is_exported_has_its_place():
    """A column of these tables is masked in the export of its kind, or not in it."""
    camel = {"contact_id": "contactId", "resolution_note": "note"}
    elsewhere = {
        "warnings", "args_run", "shown", "details",  # of calls: not exported
        "system", "history",  # of turns
    }  # fmt: skip
    kinds = {"calls": [ToolCall], "feedback": [Feedback, ToolCall, Turn], "cases": [Case], "proposals": [Proposal]}
    for kind, models in kinds.items():
        named = set(_leaves(RECORDS[kind]))
        for model in models:
            for field in model._meta.concrete_fields:
                base = field.base_field if isinstance(field, ArrayField) else field
                if isinstance(base, Masked):
                    assert camel.get(field.attname, field.attname) in named | elsewhere, (kind, field)
    assert set(_leaves(RECORDS["feedback"])) & FEEDBACK_CELLS.keys() == CELLS.keys()


def test_who_is_no_admin_any_more_gets_nothing(tenant, admin, member):
    other = member("admin")
    with tenant_scope(tenant):
        change_role(membership=admin, role="viewer", actor=other.user)
    add_rules(tenant, other, seen_by="operator")
    assert MAIL.encode() not in written(tenant, admin, ORDERS["calls"])
