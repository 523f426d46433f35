"""Who may open which page, and what those are told who may not."""

from dataclasses import dataclass

import pytest

from quality.models import Feedback, Import
from tests.factories import ImportFactory, TurnFactory
from tests.pages.conftest import HTMX

READS = (
    "/t/acme/",
    "/t/acme/calls/",
    "/t/acme/calls/{call}/",
    "/t/acme/calls/{call}/args/",
    "/t/acme/calls/{call}/result/",
    "/t/acme/calls/{call}/error/",
    "/t/acme/turns/{turn}/",
    "/t/acme/turns/{turn}/messages/",
    "/t/acme/turns/{turn}/messages/0/",
    "/t/acme/review/",
    "/t/acme/review/?call={call}",
    "/t/acme/imports/",
    "/t/acme/imports/{job}/",
    "/t/acme/imports/{job}/progress/",
    "/t/acme/imports/{job}/issues.jsonl",
)
ADMIN_READS = ("/t/acme/export/", "/t/acme/export/tool-calls.jsonl", "/t/acme/export/tool-call-feedback.jsonl")
WRITES = ("/t/acme/review/label/", "/t/acme/review/undo/", "/t/acme/imports/upload/")


@dataclass(frozen=True)
class Rows:
    """A call with an error text, its turn, and an import: `acme.at(path)` fills their ids in."""

    call: int
    turn: int
    job: int

    def at(self, path: str) -> str:
        return path.format(call=self.call, turn=self.turn, job=self.job)


@pytest.fixture
def acme(make_call, inside):
    call = make_call(is_error=True, error="boom")
    with inside():
        return Rows(call.pk, call.turn_id, ImportFactory().pk)


@pytest.mark.parametrize("path", READS)
def test_a_viewer_may_read(browse, acme, path):
    assert browse("viewer").get(acme.at(path)).status_code == 200


@pytest.mark.parametrize("path", ADMIN_READS)
def test_an_admin_may_export(browse, acme, path):
    assert browse("admin").get(acme.at(path)).status_code == 200


@pytest.mark.parametrize("path", [*READS, *ADMIN_READS])
def test_outsiders_get_404(outsider, acme, path):
    assert outsider.get(acme.at(path)).status_code == 404


@pytest.mark.parametrize("path", WRITES)
def test_outsiders_cannot_write(outsider, acme, path):
    assert outsider.post(path, {}).status_code == 404


@pytest.mark.parametrize("path", [*READS, *ADMIN_READS])
def test_nobody_is_sent_to_the_sign_in(client, acme, path):
    response = client.get(acme.at(path))
    assert response.status_code == 302
    assert response.url.startswith("/signin/?next=/t/acme/")


def test_htmx_of_somebody_who_was_signed_out_reloads_the_page(client, acme):
    response = client.get("/t/acme/calls/", headers=HTMX)
    assert response.headers["HX-Refresh"] == "true"
    assert response.content == b""


@pytest.mark.parametrize("path", WRITES)
def test_a_viewer_cannot_write_and_is_told_which_role_it_takes(browse, acme, inside, path):
    response = browse("viewer").post(path, {"call": acme.call, "label": "good_reply", "version": 0})
    assert response.status_code == 403
    assert "This needs the role Operator; yours is Viewer." in response.text
    with inside():
        assert not Feedback.objects.exists()
        assert Import.objects.count() == 1


@pytest.mark.parametrize("path", ADMIN_READS)
def test_an_operator_cannot_export(browse, acme, path):
    response = browse("operator").get(acme.at(path))
    assert response.status_code == 403
    assert "This needs the role Admin; yours is Operator." in response.text


@pytest.mark.parametrize("path", WRITES)
def test_what_writes_answers_no_get(browse, acme, path):
    assert browse("admin").get(acme.at(path)).status_code == 405


@pytest.mark.parametrize("path", WRITES)
def test_a_write_without_the_token_of_the_form_is_refused(browse, acme, path):
    client = browse("admin")
    client.handler.enforce_csrf_checks = True
    response = client.post(path, {"call": acme.call, "label": "good_reply", "version": 0})
    assert response.status_code == 403
    assert "This form is out of date" in response.text


@pytest.mark.parametrize(
    "path",
    [
        "calls/999/",
        "calls/999/args/",
        "turns/999/",
        "turns/999/messages/",
        "turns/{turn}/messages/99/",
        "review/?call=999",
        "review/?call=x",
        "review/?turn={turn}&cycle=7",
        "imports/999/",
        "imports/999/issues.jsonl",
        "nothing/",
    ],
)
def test_what_is_not_there_is_404(browse, acme, path):
    response = browse("admin").get(acme.at(f"/t/acme/{path}"))
    assert response.status_code == 404
    assert "Nothing here" in response.text


def test_another_tenants_rows_are_404_inside_ones_own_tenant(browse, tenant, other_tenant, make_call):
    from tenants.scope import tenant_scope
    from tests.factories import ToolCallFactory

    with tenant_scope(other_tenant):
        foreign = ToolCallFactory(tool_name="secret_tool")
        TurnFactory()
    client = browse("admin")
    for path in (f"calls/{foreign.pk}/", f"calls/{foreign.pk}/args/", f"turns/{foreign.turn_id}/",
                 f"review/?call={foreign.pk}"):  # fmt: skip
        assert client.get(f"/t/acme/{path}").status_code == 404
    assert "secret_tool" not in client.get("/t/acme/calls/").text
    assert "secret_tool" not in client.get("/t/acme/").text


@pytest.mark.parametrize("path", READS)
def test_pages_are_kept_by_no_cache(browse, acme, path):
    assert "no-store" in browse("admin").get(acme.at(path)).headers["Cache-Control"]


def test_pages_hold_nothing_that_the_policy_refuses(browse, acme):
    client = browse("admin")
    for path in (*READS, *ADMIN_READS, "/t/acme/nothing/"):
        response = client.get(acme.at(path))
        if response.headers["Content-Type"].startswith("text/html"):
            assert " style=" not in response.text
            assert "<style" not in response.text
            assert "hx-on" not in response.text
            assert not [line for line in response.text.splitlines() if "<script" in line and " src=" not in line]
            assert "'unsafe" not in response.headers["Content-Security-Policy"]


class TestTheme:
    def test_the_button_goes_through_all_themes_and_stays_on_the_page(self, browse, acme):
        client = browse("viewer")
        seen = []
        for _ in range(3):
            page = client.get("/t/acme/calls/?tool=a")
            following = page.text.split('name="theme"')[1].split('value="')[1].split('"')[0]
            response = client.post("/theme/", {"theme": following, "next": "/t/acme/calls/?tool=a"})
            assert response.url == "/t/acme/calls/?tool=a"
            seen.append(client.get("/t/acme/calls/").text.split('data-theme="')[1].split('"')[0])
        assert seen == ["light", "dark", ""]

    @pytest.mark.parametrize("target", ["https://attacker.example/", "//attacker.example/", "javascript:alert(1)", ""])
    def test_it_leads_nowhere_else(self, client, db, target):
        assert client.post("/theme/", {"theme": "dark", "next": target}).url == "/"

    def test_an_unknown_theme_is_the_systems(self, client, db):
        response = client.post("/theme/", {"theme": '"><script>'})
        assert response.cookies["theme"].value == ""


def test_times_are_shown_in_the_viewers_zone_which_is_named(browse, make_call):
    make_call()
    client = browse("viewer")
    client.cookies["tz"] = "Asia/Tokyo"
    page = client.get("/t/acme/calls/").text
    assert "Asia/Tokyo" in page
    assert "Time (JST)" in page
