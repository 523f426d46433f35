"""Cases on the page: made of a label, edited as a form and as JSON, archived, restored, merged."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.urls import reverse

from quality.improve.case_draft import draft_from
from quality.improve.case_record import record_of
from quality.models import Case, Proposal
from tenants.models import Role
from tenants.scope import tenant_scope
from tests.factories import CaseFactory, FeedbackFactory, ProposalFactory, ToolCallFactory, TurnFactory

HTMX = {"HX-Request": "true"}


@pytest.fixture
def browse(member):
    def make(role=Role.OPERATOR):
        client = Client()
        client.force_login(member(role).user)
        return client

    return make


@pytest.fixture
def feedback(tenant):
    with tenant_scope(tenant):
        call = ToolCallFactory(turn=TurnFactory(), args='{"city": "Zurich", "unit":"celsius"}')
        correction = '{"arguments":{"city":"Zürich","unit":"celsius"}}'
        return FeedbackFactory(call=call, correction=correction)


def address(name="case-list", *args):
    return reverse(name, args=["acme", *args])


def form_of(page: str) -> dict[str, str]:
    """What a browser would send of the editor's form."""
    from html.parser import HTMLParser

    sent: dict[str, str] = {}

    class Reader(HTMLParser):
        select = area = ""

        def handle_starttag(self, tag, attributes):
            given = dict(attributes)
            if tag == "input" and given.get("name") and given.get("type") not in ("checkbox", "submit"):
                sent[given["name"]] = given.get("value") or ""
            elif tag == "select":
                self.select = given.get("name") or ""
                sent.setdefault(self.select, "")
            elif tag == "option" and self.select and "selected" in given:
                sent[self.select] = given.get("value") or ""
            elif tag == "textarea":
                self.area = given.get("name") or ""
                sent[self.area] = ""

        def handle_endtag(self, tag):
            if tag == "select":
                self.select = ""
            elif tag == "textarea":
                self.area = ""

        def handle_data(self, data):
            if self.area:
                sent[self.area] += data

    Reader().feed(page)
    return sent


def test_a_case_is_proposed_from_the_correction_and_saved(tenant, browse, feedback):
    client = browse()
    page = client.get(f"{address('case-new')}?feedback={feedback.pk}").content.decode()
    sent = form_of(page)
    assert sent["mode"] == "first"
    assert sent["step-0-tool"] == "get_weather"
    assert {sent["step-0-arg-0-name"], sent["step-0-arg-1-name"]} == {"city", "unit"}
    assert '"Zürich"' in (sent["step-0-arg-0-text"], sent["step-0-arg-1-text"])
    assert 'class="tag failed"' in page  # the recorded call fails its own case
    assert 'class="tag done"' in page  # the corrected one passes
    response = client.post(address("case-new"), sent | {"tags": "weather, city"})
    assert response.url == address("case-detail", 1)
    with tenant_scope(tenant):
        case = Case.objects.get()
    assert (case.number, case.tags, case.label) == (1, ["weather", "city"], "bad_args")
    expected = json.loads(case.expectation)["calls"]["steps"][0]
    assert expected["args"]["city"] == {"equal": "Zürich"}


def test_with_a_proposal_it_closes_it(tenant, browse, feedback):
    with tenant_scope(tenant):
        proposal = ProposalFactory()
    client = browse()
    page = client.get(f"{address('case-new')}?feedback={feedback.pk}&proposal={proposal.pk}").content.decode()
    assert "closes" in page
    client.post(address("case-new"), form_of(page))
    with tenant_scope(tenant):
        proposal = Proposal.objects.get()
    assert (proposal.state, proposal.resolution_kind, proposal.resolution_ref) == (
        "applied",
        "regression_case",
        "REG-1",
    )
    detail = client.get(address("proposal-detail", proposal.pk)).content.decode()
    assert address("case-detail", 1) in detail


@pytest.mark.parametrize(
    ("label", "correction"),
    [
        ("bad_args", None),
        ("bad_args", '{"arguments":{"city":"Bern"}}'),
        ("wrong_tool", None),
        ("wrong_tool", '{"tool":"get_time","offered":false}'),
        ("missing_tool", None),
        ("missing_tool", '{"tool":"get_time","offered":false,"position":{"cycle":0,"index":0}}'),
        ("good_reply", None),
    ],
)
def test_what_a_label_proposes_is_saved_from_the_form_as_it_is_proposed(tenant, browse, label, correction):
    with tenant_scope(tenant):
        call = None if label == "missing_tool" else ToolCallFactory(turn=TurnFactory(), args='{"city": "Zurich"}')
        row = FeedbackFactory(call=call, label=label, correction=correction)
        proposed = json.loads(draft_from(row).expectation)
    client = browse()
    sent = form_of(client.get(f"{address('case-new')}?feedback={row.pk}").content.decode())
    assert sent["as"] == "form"
    page = client.post(address("case-new"), sent)
    assert page.status_code == 302, page.content.decode()
    with tenant_scope(tenant):
        assert json.loads(Case.objects.get().expectation) == proposed


def test_ids_of_many_digits_are_sent_as_they_are(tenant, browse):
    with tenant_scope(tenant):
        label = FeedbackFactory(pk=60_256, correction='{"arguments":{"city":"Bern"}}')
        proposal = ProposalFactory(pk=12_345)
    client = browse()
    page = client.get(reverse("proposal-detail", args=["acme", proposal.pk])).content.decode()
    new = f"{address('case-new')}?feedback={label.pk}&amp;proposal={proposal.pk}"
    assert new in page
    sent = form_of(client.get(new.replace("&amp;", "&")).content.decode())
    assert (sent["feedback"], sent["proposal"]) == ("60256", "12345")
    assert client.post(address("case-new"), sent).status_code == 302
    with tenant_scope(tenant):
        Case.objects.update(version=1_234)
    sent = form_of(client.get(address("case-detail", 1)).content.decode())
    assert sent["version"] == "1234"


def test_an_expectation_that_the_recorded_call_meets_is_asked_about_before_it_is_saved(tenant, browse, feedback):
    client = browse()
    sent = form_of(client.get(f"{address('case-new')}?feedback={feedback.pk}").content.decode())
    place = next(at for at in (0, 1) if sent[f"step-0-arg-{at}-name"] == "city")
    sent |= {f"step-0-arg-{place}-matcher": "ignore"}
    page = client.post(address("case-new"), sent).content.decode()
    assert "Save anyway" in page
    with tenant_scope(tenant):
        assert not Case.objects.exists()
    assert client.post(address("case-new"), sent | {"anyway": "1"}).status_code == 302


@pytest.fixture
def case(tenant):
    with tenant_scope(tenant):
        return CaseFactory()


def test_an_untouched_form_saves_no_version(tenant, browse, case):
    client = browse()
    sent = form_of(client.get(address("case-detail", case.number)).content.decode())
    client.post(address("case-edit", case.number), sent)
    with tenant_scope(tenant):
        assert Case.objects.get().version == 1
    sent |= {"behavior": "Asks for the weather\r\nin Zürich.", "tags": "smoke, two words"}
    client.post(address("case-edit", case.number), sent)
    with tenant_scope(tenant):
        changed = Case.objects.get()
    assert (changed.version, changed.behavior) == (2, "Asks for the weather\nin Zürich.")
    assert changed.tags == ["smoke", "two words"]
    sent = form_of(client.get(address("case-detail", case.number)).content.decode())
    client.post(address("case-edit", case.number), sent | {"behavior": sent["behavior"].replace("\n", "\r\n")})
    with tenant_scope(tenant):
        assert Case.objects.get().version == 2


def test_rows_come_and_go_without_being_saved(tenant, browse, case):
    client = browse()
    sent = form_of(client.get(address("case-detail", case.number)).content.decode())
    edit = address("case-edit", case.number)
    more = client.post(edit, sent | {"do": "add:step-0-arg"}, headers=HTMX).content.decode()
    assert "step-0-arg-1-name" in more
    assert "<html" not in more
    less = client.post(edit, sent | form_of(more) | {"do": "drop:step-0-arg-0"}, headers=HTMX).content.decode()
    assert form_of(less)["step-0-arg-0-name"] == ""
    assert "step-0-arg-1-name" not in less
    whole = client.post(edit, sent | {"do": "add:forbid"}).content.decode()  # no JavaScript
    assert "forbid-0-tool" in whole
    assert "<html" in whole
    with tenant_scope(tenant):
        assert Case.objects.get().version == 1


def test_the_verdict_alone_is_answered_while_one_types(browse, case):
    client = browse()
    sent = form_of(client.get(address("case-detail", case.number)).content.decode())
    sent |= {"step-0-arg-0-text": '"Zurich"', "step-0-extra": "allow", "do": "judge"}
    verdict = client.post(address("case-edit", case.number), sent, headers=HTMX).content.decode()
    assert 'id="verdict"' in verdict
    assert "pass" in verdict
    assert 'name="mode"' not in verdict


def test_form_and_json_lead_into_each_other(browse, case):
    client = browse()
    edit = address("case-edit", case.number)
    sent = form_of(client.get(address("case-detail", case.number)).content.decode())
    as_json = form_of(client.post(edit, sent | {"do": "as:json"}, headers=HTMX).content.decode())
    assert json.loads(as_json["expectation"])["calls"]["mode"] == "first"
    back = form_of(client.post(edit, sent | as_json | {"do": "as:form"}, headers=HTMX).content.decode())
    assert back["as"] == "form"
    rich = json.dumps({"version": 1, "calls": {"mode": "exact", "steps": [{"any_of": [{"tool": "a"}, {"tool": "b"}]}]}})
    kept = client.post(edit, {"as": "json", "expectation": rich, "do": "as:form"}, headers=HTMX).content.decode()
    assert "which the form does not show" in kept
    assert form_of(kept)["as"] == "json"


def test_bad_json_is_told_with_its_place_and_not_saved(tenant, browse, case):
    client = browse()
    text = {"version": 1, "as": "json", "behavior": "x", "expectation": '{"version": 1, "calls": {"mode": "frist"}}'}
    response = client.post(address("case-edit", case.number), text)
    assert response.status_code == 400
    assert "/calls/mode" in response.content.decode()
    with tenant_scope(tenant):
        assert Case.objects.get().version == 1


def test_an_edit_is_a_version_with_a_diff_and_a_stale_one_is_refused(tenant, browse, case):
    client = browse()
    edit, detail = address("case-edit", case.number), address("case-detail", case.number)
    sent = form_of(client.get(detail).content.decode()) | {"behavior": "Spells the city.", "note": "Clearer"}
    assert client.post(edit, sent).url == detail
    page = client.get(detail).content.decode()
    assert "Version 2" in page
    assert "Clearer" in page
    assert "<ins>" in page
    late = client.post(edit, sent | {"behavior": "Mine"})
    assert late.status_code == 409
    assert "Mine" in late.content.decode()
    with tenant_scope(tenant):
        assert Case.objects.get().behavior == "Spells the city."


def test_it_is_archived_restored_and_listed_by_status(browse, case):
    client = browse()
    client.post(address("case-archive", case.number), {"version": 1})
    assert "No case matches" in client.get(address()).content.decode()
    assert case.ref in client.get(address() + "?status=archived").content.decode()
    page = client.get(address("case-detail", case.number)).content.decode()
    assert "restore it first" in page
    assert client.post(address("case-archive", case.number), {"version": 2}).status_code == 409
    client.post(address("case-restore", case.number), {"version": 2})
    assert case.ref in client.get(address()).content.decode()


def test_duplicates_are_offered_and_merged(tenant, browse, case):
    with tenant_scope(tenant):
        other = CaseFactory(same_sha256=case.same_sha256)
    client = browse()
    page = client.get(address("case-detail", case.number)).content.decode()
    assert f"Merge into {case.ref}" in page
    client.post(address("case-merge", case.number), {"other": other.ref})
    page = client.get(address("case-detail", other.number)).content.decode()
    assert "Merged into" in page
    assert case.ref in page


def test_viewers_read_only_and_other_tenants_see_nothing(browse, case, member, other_tenant):
    viewer = browse(Role.VIEWER)
    page = viewer.get(address("case-detail", case.number)).content.decode()
    assert case.ref in page
    assert 'name="mode"' not in page
    assert viewer.post(address("case-edit", case.number), {}).status_code == 403
    outsider = Client()
    outsider.force_login(member(Role.ADMIN, tenant=other_tenant).user)
    assert outsider.get(address("case-detail", case.number)).status_code == 404
    assert outsider.get(reverse("case-detail", args=["globex", case.number])).status_code == 404


def test_an_empty_list_says_how_a_case_is_made(tenant, browse):
    assert "press Case on one of its calls" in browse().get(address()).content.decode()


def test_what_is_not_there_is_not_found(tenant, browse):
    client = browse()
    for path in (address("case-detail", 7), f"{address('case-new')}?feedback=9", f"{address('case-new')}?feedback=x"):
        assert client.get(path).status_code == 404


def exported(tenant) -> bytes:
    with tenant_scope(tenant):
        return "".join(f"{record_of(case)}\n" for case in Case.objects.order_by("number")).encode()


def upload(client, content: bytes, slug="acme"):
    file = SimpleUploadedFile("cases.jsonl", content, "application/x-ndjson")
    return client.post(reverse("case-import", args=[slug]), {"file": file})


def test_an_export_is_taken_in_again_by_file(tenant, other_tenant, browse, member, case):
    content = exported(tenant)
    client = Client()
    client.force_login(member(Role.OPERATOR, tenant=other_tenant).user)
    page = " ".join(upload(client, content, "globex").content.decode().split())
    assert "<dt>New</dt> <dd > 1 </dd>" in page or "<dd> 1 </dd>" in page
    assert exported(other_tenant) == content
    again = " ".join(upload(browse(), content).content.decode().split())
    assert "<dt>Unchanged</dt> <dd> 1 </dd>" in again


def test_a_bad_line_is_told_with_line_field_and_reason(browse, tenant, case):
    line = exported(tenant).replace(b'"REG-1"', b'"REG-9"').replace(b'"mode": "first"', b'"mode": "frist"')
    page = upload(browse(), line + b"nonsense\n").content.decode()
    assert "frist" in page
    assert '<td class="num">2</td>' in page


def test_a_file_is_needed_and_viewers_may_not(browse, tenant):
    assert "Choose a file" in browse().post(address("case-import"), {}).content.decode()
    assert upload(browse(Role.VIEWER), b"").status_code == 403
