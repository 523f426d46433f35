"""Exported cases come back: nothing is lost on the way, nothing comes twice, and each refused line is told by name."""

import datetime as dt
import hashlib
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from quality import export
from quality.cases.record import read_cases
from quality.improve import cases
from quality.improve.case_import import ImportRefused, import_cases
from quality.improve.case_record import record_of
from quality.improve.cases import ImportReport
from quality.models import Case, CaseVersion
from tenants.models import AuditEvent, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, FeedbackFactory, MembershipFactory, TenantFactory, ToolCallFactory, UserFactory


@pytest.fixture
def ada(db: None) -> User:
    return UserFactory(name="Ada")


def exported(tenant: Tenant) -> bytes:
    """The export as the service streams it."""
    with tenant_scope(tenant):
        reader = export.Reader(actor=MembershipFactory(role="admin").user)
    return b"".join(export.lines(export.Order(wanted=export.CaseFilter()), tenant_id=tenant.pk, reader=reader))


def load(tenant: Tenant, body: bytes, by: User, **options: Any) -> ImportReport:
    with tenant_scope(tenant):
        return import_cases(body.splitlines(keepends=True), by=by, **options)


def ended(*lines: bytes) -> bytes:
    body = b"".join(lines)
    end = {"recordType": "_end", "count": len(lines), "sha256": hashlib.sha256(body).hexdigest(), "nextCursor": None}
    return body + json.dumps(end).encode() + b"\n"


def line_of(case: Case, **changes: bytes) -> bytes:
    line = record_of(case).encode() + b"\n"
    for old, new in changes.items():
        line = line.replace(old.encode(), new)
    return line


# --- lossless --------------------------------------------------------------------------------------------------------

blank = st.sampled_from(["", " ", "\n", "\r\n\t ", "  "])
leaf = st.one_of(
    st.sampled_from(["null", "true", "-0", "1.10", "1E+2", "9" * 300, "-1e-300", r'"\ud800\u0000"', '"\u2028\x85"']),
    st.text().map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.text().map(json.dumps),
)


def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    member = st.tuples(st.text(max_size=5), blank, inner).map(
        lambda parts: f"{json.dumps(parts[0], ensure_ascii=False)}{parts[1]}:{parts[2]}"
    )
    joined = st.tuples(blank, st.lists(inner, max_size=3), blank).map(lambda p: f"[{p[0]}{','.join(p[1])}{p[2]}]")
    # A model may write a name twice: evidence keeps both.
    named = st.tuples(blank, st.lists(member, max_size=3), blank).map(lambda p: f"{{{p[0]}{','.join(p[1])}{p[2]}}}")
    return joined | named


anything = st.recursive(leaf, containers, max_leaves=8)
lists = st.lists(anything, max_size=3).map(lambda parts: f"[{' , '.join(parts)}]")
word = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
expectations = st.sampled_from(
    [
        '{"version":1}',
        '{ "version" : 1,\r\n"calls":{"mode":"none"} }',
        '{"calls":{"mode":"first","steps":[{"tool":"get_weather","args":{"n":{"equal":1.10}}}]},"version":1}',
    ]
)
times = st.integers(-30_000_000_000_000_000, 220_000_000_000_000_000).map(
    lambda microseconds: dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=microseconds)
)
fields = st.fixed_dictionaries(
    {
        "version": st.integers(1, 2**31 - 1),
        "status": st.sampled_from(["active", "archived"]),
        "tool_name": word,
        "label": st.sampled_from(["good_reply", "wrong_tool", "missing_tool", "bad_args", "other"]),
        "tags": st.lists(st.text("abc-é", min_size=1, max_size=8), max_size=3, unique=True),
        "args": st.none() | anything.filter(lambda text: text != "null"),
        "messages": lists,
        "tools": st.none() | lists,
        "now": st.none() | times,
        "result": st.none() | anything.filter(lambda text: text != "null"),
        "is_error": st.none() | st.booleans(),
        "error": st.none() | word,
        "cycle": st.integers(0, 32_767),
        "index": st.none() | st.integers(0, 32_767),
        "behavior": word.filter(str.strip),
        "expectation": expectations,
        "context": st.lists(anything, max_size=3).map(
            lambda parts: "{" + ",".join(f'"m{at}":{part}' for at, part in enumerate(parts)) + "}"
        ),
        "stubs": lists.map(lambda text: f'[{{"tool":"x","arguments":{text},"result":{text}}}]'),
        "created_at": times,
        "updated_at": times,
    }
)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(rows=st.lists(fields, min_size=1, max_size=3), gap=st.integers(0, 50))
def test_export_import_export_gives_the_same_bytes(ada: User, rows: list[dict[str, Any]], gap: int) -> None:
    here, there = TenantFactory(), TenantFactory()
    with tenant_scope(here):
        for at, row in enumerate(rows, start=1):
            CaseFactory(number=at * (gap + 1), **row)
    body = exported(here)
    report = load(there, body, ada, require_trailer=True)
    assert (report.num_created, report.num_refused, report.refused, report.warnings) == (len(rows), 0, [], [])
    assert exported(there) == body
    again = load(there, body, ada)
    assert (again.num_created, again.num_unchanged) == (0, len(rows))
    assert exported(there) == body
    assert load(here, body, ada).num_unchanged == len(rows)


def test_a_case_made_of_a_label_goes_round_and_fits_the_published_schema(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        said = (("bad_args", '{"arguments":{"city":"Bern"}}'), ("missing_tool", '{"tool":"get_weather"}'))
        for label, correction in said:
            call = ToolCallFactory() if label == "bad_args" else None
            cases.case_from_feedback(FeedbackFactory(call=call, label=label, correction=correction), by=ada)
        cases.archive(1, by=ada)
    body = exported(tenant)
    read = read_cases(body.splitlines(keepends=True), require_trailer=True)
    assert (read.faults, [case.id for case in read.cases], read.complete) == ([], ["REG-1", "REG-2"], True)
    there = TenantFactory()
    assert load(there, body, ada).num_created == 2
    assert exported(there) == body


# --- numbers ---------------------------------------------------------------------------------------------------------


def test_a_taken_number_is_replaced_above_all_that_the_file_brings(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        CaseFactory(number=1, behavior="Here.")
    there = TenantFactory()
    with tenant_scope(there):
        lines = [line_of(CaseFactory(number=number, behavior=f"There {number}.")) for number in (1, 2, 3)]
    report = load(tenant, ended(*lines), ada)
    assert (report.num_created, report.renumbered) == (3, [("REG-1", "REG-4")])
    with tenant_scope(tenant):
        found = dict(Case.objects.order_by("number").values_list("number", "behavior"))
        assert found == {1: "Here.", 2: "There 2.", 3: "There 3.", 4: "There 1."}
        assert AuditEvent.objects.get(action="cases.imported").detail["renumbered"] == 1
    again = load(tenant, ended(*lines), ada)
    assert (again.num_created, again.num_unchanged, again.renumbered) == (0, 3, [])


def test_the_same_line_twice_in_a_file_is_one_case(tenant: Tenant, ada: User) -> None:
    there = TenantFactory()
    with tenant_scope(there):
        line = line_of(CaseFactory())
    with tenant_scope(tenant):
        CaseFactory()
    report = load(tenant, ended(line, line), ada)
    assert (report.num_created, report.num_unchanged) == (1, 1)


def test_an_older_version_of_a_case_changes_nothing(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        case = CaseFactory()
        line = line_of(case)
        cases.edit(case.number, by=ada, seen_version=1, behavior="Newer.")
    assert load(tenant, ended(line), ada).num_unchanged == 1
    with tenant_scope(tenant):
        assert Case.objects.get().behavior == "Newer."


def test_an_imported_case_that_was_edited_stays_as_it_is(tenant: Tenant, ada: User) -> None:
    there = TenantFactory()
    with tenant_scope(there):
        line = line_of(CaseFactory(number=5, version=3))
    load(tenant, ended(line), ada)
    with tenant_scope(tenant):
        (version,) = CaseVersion.objects.all()
        assert (version.number, version.note, version.data.encode() + b"\n") == (3, "Imported.", line)
        cases.edit(5, by=ada, seen_version=3, behavior="Mine.")
    assert load(tenant, ended(line), ada).num_unchanged == 1
    with tenant_scope(tenant):
        assert Case.objects.get().behavior == "Mine."
        assert cases.get(5).call is None


def test_merged_cases_find_each_other_again(tenant: Tenant, ada: User) -> None:
    with tenant_scope(tenant):
        kept, gone = CaseFactory(same_sha256=b"s" * 32), CaseFactory(same_sha256=b"s" * 32)
        cases.merge(kept.number, gone.number, by=ada)
    there = TenantFactory()
    with tenant_scope(there):
        CaseFactory(number=1)
    assert load(there, exported(tenant), ada).renumbered == [("REG-1", "REG-3")]
    with tenant_scope(there):
        assert cases.get(2).merged_into == cases.get(3)


# --- what is refused -------------------------------------------------------------------------------------------------


@pytest.fixture
def line(db: None) -> bytes:
    with tenant_scope(TenantFactory()):
        return line_of(CaseFactory())


@pytest.mark.parametrize(
    ("old", "new", "path", "code"),
    [
        (b'"recordType":"tool_call_regression_case"', b'"recordType":"tool_call"', "recordType", "wrong_type"),
        (b'"recordType"', b'"recordKind"', "recordType", "required"),
        (b'"schemaVersion":1', b'"schemaVersion":2', "schemaVersion", "unknown_version"),
        (b'"schemaVersion":1', b'"schemaVersion":true', "schemaVersion", "unknown_version"),
        (b'"REG-1"', b'"REG-01"', "id", "invalid"),
        (b'"REG-1"', b'"REG-2147483648"', "id", "invalid"),
        (b'"REG-1"', b"1", "id", "invalid"),
        (b'"version":1,"status"', b'"version":0,"status"', "version", "invalid"),
        (b'"version":1,"status"', b'"version":1.0,"status"', "version", "invalid"),
        (b'"status":"active"', b'"status":"open"', "status", "unknown_value"),
        (b'"label":"bad_args"', b'"label":"bad"', "label", "unknown_value"),
        (b'"toolName":"get_weather"', b'"toolName":"a\\u0000"', "toolName", "unstorable"),
        (b'"toolName":"get_weather"', b'"toolName":null', "toolName", "wrong_type"),
        (b'"tags":[]', b'"tags":["a","a"]', "tags", "invalid"),
        (b'"tags":[]', b'"tags":[1]', "tags", "wrong_type"),
        (b'"tags":[]', b'"tags":[" a"]', "tags", "invalid"),
        (b'"messages":[', b'"messages":1,"more":[', "input.messages", "wrong_type"),
        (b'"input":{', b'"input":{"more":1,', "input.more", "unknown_member"),
        (b'"now":"2026', b'"now":"26', "input.now", "invalid_time"),
        (b'"isError":false', b'"isError":0', "observed.isError", "wrong_type"),
        (b'"cycle":0', b'"cycle":40000', "observed.cycle", "invalid"),
        (b'"index":0', b'"index":-1', "observed.index", "invalid"),
        (b'"behavior":"', b'"behavior":"\\ud800', "expected.behavior", "unstorable"),
        (b'"mode": "first"', b'"mode": "last"', "expected.expectation.calls.mode", ""),
        (b'"context":{', b'"context":[{', "", "malformed_json"),
        (b'"stubs":[]', b'"stubs":[{}]', "stubs", "invalid"),
        (b'"stubs":[]', b'"stubs":null', "stubs", "invalid"),
        (b'"stubs":[]', b'"stubs":[],"extra":1', "extra", "unknown_member"),
        (b'"observed":{', b'"observed":7,"x":{', "observed", "not_an_object"),
        (b'21.50', b'NaN', "input", "non_finite_number"),
    ],
)  # fmt: skip
def test_a_bad_line_is_told_by_line_field_and_reason(
    tenant: Tenant, ada: User, line: bytes, old: bytes, new: bytes, path: str, code: str
) -> None:
    assert old in line
    good = line.replace(b'"REG-1"', b'"REG-2"')
    report = load(tenant, good + b"\n" + line.replace(old, new, 1), ada)
    assert (report.num_created, report.num_refused) == (1, 1)
    (fault,) = report.refused
    assert fault.line == 3
    assert fault.code == code or not code
    assert fault.path.startswith(path) or fault.code in {"malformed_json", "non_finite_number"}
    assert fault.message
    with tenant_scope(tenant):
        assert [case.ref for case in Case.objects.all()] == ["REG-2"]


def test_a_file_that_was_cut_or_changed_is_refused_whole(tenant: Tenant, ada: User, line: bytes) -> None:
    whole = ended(line, line.replace(b'"REG-1"', b'"REG-2"'))
    first, second, end = whole.splitlines(keepends=True)
    for body, code in (
        (first + end, "wrong_count"),
        (first + second.replace(b"Zurich", b"Zurick") + end, "wrong_sha256"),
        (whole.replace(b"\n", b"\r\n"), "wrong_sha256"),
        (whole + first, "after_trailer"),
        (whole + end, "after_trailer"),
    ):
        with pytest.raises(ImportRefused) as caught:
            load(tenant, body, ada)
        assert caught.value.fault.code == code
    with pytest.raises(ImportRefused) as caught:
        load(tenant, first + second, ada, require_trailer=True)
    assert caught.value.fault.code == "no_trailer"
    with tenant_scope(tenant):
        assert not Case.objects.exists()
        assert not AuditEvent.objects.exists()


def test_without_its_last_line_a_file_may_be_cut(tenant: Tenant, ada: User, line: bytes) -> None:
    assert load(tenant, line, ada).warnings == ["The last line of the export is missing: the file may be cut."]


def test_a_part_of_an_export_says_that_more_follows(tenant: Tenant, ada: User, line: bytes) -> None:
    part = ended(line).replace(b'"nextCursor": null', b'"nextCursor": "abc"')
    assert "part of an export" in load(tenant, part, ada).warnings[0]


def test_nothing_crosses_to_another_tenant(tenant: Tenant, other_tenant: Tenant, ada: User, line: bytes) -> None:
    load(tenant, ended(line), ada)
    with tenant_scope(other_tenant):
        assert not Case.objects.exists()
        with pytest.raises(cases.NoSuchCase):
            cases.get(1)
    assert load(other_tenant, ended(line), ada).num_created == 1
