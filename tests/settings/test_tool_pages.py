"""The Tools and Booking pages, and the list over the API: what they do, for whom, and what they cost."""

import json

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tenants import booking, tools
from tenants.models import HttpToolRow, Secret
from tenants.scope import tenant_scope
from tests.engine.loopback import Answer
from tests.engine.loopback import serving as http_server
from tests.factories import ToolCallFactory
from tests.settings.http_tools import definition, loopback  # noqa: F401  (a fixture)

PAGE = "/t/acme/tools/"
BOOKING = "/t/acme/booking/"
FORM = {
    "name": "get_order",
    "description": "Look an order up.",
    "method": "GET",
    "url": "https://api.example.com/orders/{number}",
    "headers": "Authorization: Bearer {secret:SHOP_KEY}\nAccept: application/json",
    "parameters": json.dumps(definition()["parameters"]),
    "mode": "auto",
    "safety": "safe",
    "is_enabled": "on",
}
LITERAL = "literal-key-0815"


@pytest.fixture
def admin(member):
    return member("admin").user


@pytest.fixture
def row(inside, admin) -> HttpToolRow:
    with inside():
        return tools.save_tool(definition(headers={"X-Key": LITERAL}), actor=admin).row


def test_a_tool_is_written_in_the_form_and_waits_for_its_secret(browse, inside):
    client = browse()
    page = client.post(f"{PAGE}create/", FORM, follow=True).text
    assert "get_order is saved" in page
    assert "may not send SHOP_KEY to https://api.example.com:443 yet" in page
    with inside():
        kept = json.loads(HttpToolRow.objects.get().definition)
    assert kept["headers"] == {"Authorization": "Bearer {secret:SHOP_KEY}", "Accept": "application/json"}
    assert "waits for SHOP_KEY" in client.get(PAGE).text
    client.post("/t/acme/secrets/set/", {"name": "SHOP_KEY", "value": "canary-4711"})
    assert "waits for SHOP_KEY" not in client.get(PAGE).text
    assert "get_order" in client.get("/t/acme/secrets/").text
    moved = client.post(f"{PAGE}{_pk(inside)}/save/", FORM | {"url": "https://b.example/{number}"}, follow=True).text
    assert "may not send" in moved


def _pk(inside) -> int:
    with inside():
        return HttpToolRow.objects.get().pk


def test_a_tool_is_written_as_json(browse, inside):
    browse().post(f"{PAGE}create/", {"definition": json.dumps(definition()), "is_enabled": "on"})
    with inside():
        assert json.loads(HttpToolRow.objects.get().definition) == definition()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"url": "http://10.0.0.1/"}, "url: "),
        ({"parameters": "{"}, "This is not JSON"),
        ({"parameters": '{"type": "array"}'}, "parameters: "),
        ({"headers": "no colon"}, "Line 1 is not of the form"),
        ({"name": ""}, "required"),
    ],
)
def test_bad_input_is_told_back_and_nothing_is_kept(browse, inside, change, told):
    page = browse().post(f"{PAGE}create/", FORM | change).text
    assert told in page
    assert "Look an order up." in page
    with inside():
        assert not HttpToolRow.objects.exists()


def test_faults_are_told_while_one_writes(browse):
    client = browse()
    htmx = {"HX-Request": "true"}
    part = client.post(f"{PAGE}check/", FORM | {"url": "https://{host}/"}, headers=htmx).text
    assert part.strip().startswith('<div id="faults"')
    assert "url: " in part
    assert "Nothing is wrong" in client.post(f"{PAGE}check/", FORM, headers=htmx).text
    assert "[0]" not in client.post(f"{PAGE}check/", {"definition": "{}"}, headers=htmx).text
    assert "This is not JSON" in client.post(f"{PAGE}check/", {"definition": "{"}, headers=htmx).text


def test_history_shows_what_changed_and_brings_it_back(browse, row, inside):
    client = browse()
    client.post(
        f"{PAGE}{row.pk}/save/", {"definition": json.dumps(definition(description="Worse.")), "is_enabled": "on"}
    )
    page = client.get(f"{PAGE}{row.pk}/").text
    assert "<ins>+ <bdi>  &quot;description&quot;: &quot;Worse.&quot;" in page
    client.post(f"{PAGE}{row.pk}/restore/1/")
    with inside():
        assert json.loads(HttpToolRow.objects.get().definition)["description"] == "Look an order up."
    assert client.post(f"{PAGE}{row.pk}/restore/99/").status_code == 404


def test_a_tool_is_tried_with_arguments_from_its_schema(browse, inside, admin, loopback):  # noqa: F811
    with http_server(Answer(body=b'{"status": "sent"}')) as server:
        base = loopback(server)
        with inside():
            row = tools.save_tool(definition(url=base + "/orders/{number}"), actor=admin).row
        page = browse().post(f"{PAGE}{row.pk}/try/", {"argument-0": "A 7", "argument-1": "true", "more": ""}).text
        assert server.seen[0].target == "/orders/A%207?full=true"
    assert "{&quot;status&quot;: &quot;sent&quot;}" in page
    assert "HTTP 200" in page


def test_a_tool_that_fails_or_is_asked_badly_says_so(browse, inside, admin, loopback):  # noqa: F811
    with http_server(Answer(status=404, body=b"nobody knows")) as server:
        base = loopback(server)
        with inside():
            row = tools.save_tool(definition(url=base + "/orders/{number}"), actor=admin).row
        client = browse()
        assert "http_status" in client.post(f"{PAGE}{row.pk}/try/", {"argument-0": "7", "more": ""}).text
        assert "This field is required" in client.post(f"{PAGE}{row.pk}/try/", {"more": ""}).text
        assert "This is not JSON" in client.post(f"{PAGE}{row.pk}/try/", {"argument-0": "7", "more": "{"}).text
        assert len(server.seen) == 1


def test_the_list_counts_calls_and_errors_of_a_week(browse, inside, row):
    from django.utils import timezone

    with inside():
        for is_error in (True, False, False, False):
            ToolCallFactory(tool_name="get_order", is_error=is_error, started_at=timezone.now())
        ToolCallFactory(tool_name="get_order", is_error=True)  # long ago
    page = browse("viewer").get(PAGE).text
    assert "25 %" in page


def test_the_array_goes_out_and_comes_in(browse, row, inside):
    client = browse()
    array = client.get(f"{PAGE}export.json")
    assert array.headers["Content-Disposition"] == 'attachment; filename="acme-tools.json"'
    client.post(f"{PAGE}{row.pk}/delete/")
    assert "1 tool is taken in" in client.post(f"{PAGE}import/", {"definitions": array.text}, follow=True).text
    assert "is not JSON" in client.post(f"{PAGE}import/", {"definitions": "["}, follow=True).text
    with inside():
        assert HttpToolRow.objects.count() == 1


def test_a_file_of_definitions_is_taken_in(browse, inside):
    client = browse()
    kept = json.dumps([definition(name="from_file")]).encode()
    file = SimpleUploadedFile("tools.json", kept, content_type="application/json")
    assert "1 tool is taken in" in client.post(f"{PAGE}import/", {"file": file}, follow=True).text
    with inside():
        assert HttpToolRow.objects.get().name == "from_file"
    for content, told in ((b"\xff", "not UTF-8"), (b"{}", "array"), (b"[1]", "object")):
        page = client.post(f"{PAGE}import/", {"file": SimpleUploadedFile("tools.json", content)})
        assert told in page.text
    large = SimpleUploadedFile("large.json", b" " * (5 * 1024 * 1024 + 1))
    assert "large.json is larger than 5 MiB" in client.post(f"{PAGE}import/", {"file": large}).text
    assert "Choose a file" in client.post(f"{PAGE}import/", {}).text


def test_what_was_refused_stays_to_be_mended(browse):
    page = browse().post(f"{PAGE}import/", {"definitions": '[{"name": "half"}]'})
    assert page.status_code == 200
    assert "[{&quot;name&quot;: &quot;half&quot;}]" in page.text


def test_a_tool_is_deleted_in_two_steps_and_its_form_stays(browse, row):
    page = browse().get(f"{PAGE}{row.pk}/").text
    assert "All its versions go with it" in page
    assert page.index("Yes, delete") < page.index("Try it")


def test_limits_are_set_within_bounds(browse):
    client = browse()
    page = client.post(
        f"{PAGE}limits/", {"max_calls": "5", "max_tokens": "9000", "wall_time_s": "30"}, follow=True
    ).text
    assert "5 calls" in page
    assert "9,000 tokens" in page
    assert "at most 300" in client.post(f"{PAGE}limits/", {"wall_time_s": "301"}).text
    assert "at most 32" in client.post(f"{PAGE}limits/", {"max_calls": "33"}).text
    assert "8 replies" in client.post(f"{PAGE}limits/", {"max_cycles": "8"}, follow=True).text
    assert "at most 32" in client.post(f"{PAGE}limits/", {"max_cycles": "33"}).text
    assert "4 replies" in client.post(f"{PAGE}limits/", {}, follow=True).text


def test_our_own_tools_are_switched(browse, inside):
    client = browse()
    client.post(
        f"{PAGE}switch/", {"name": "offer_booking_link", "is_enabled": "on", "mode": "approve", "safety": "safe"}
    )
    assert "<option selected>approve</option>" in client.get(PAGE).text
    assert client.post(f"{PAGE}switch/", {"name": "nobody", "is_enabled": "on"}).status_code == 404
    assert (
        "chosen from the lists"
        in client.post(f"{PAGE}switch/", {"name": "offer_booking_link", "mode": "client"}, follow=True).text
    )


class TestBooking:
    def test_a_link_is_set_shown_and_removed(self, browse, inside):
        client = browse()
        page = client.post(f"{BOOKING}set/", {"url": "https://cal.example.com/team?x=1"}, follow=True).text
        assert "https://cal.example.com/team?x=1" in page
        with inside():
            assert b"cal.example" not in bytes(Secret.objects.get().ciphertext)
        reader = browse("viewer").get(BOOKING).text
        assert "https://cal.example.com/team?x=1" in reader
        assert "Disable and remove" not in reader
        assert "it is offered no more" in client.post(f"{BOOKING}remove/", follow=True).text

    @pytest.mark.parametrize(
        "url",
        ["http://cal.example.com/", "https://localhost/", "https://10.0.0.1/", "https://u:p@cal.example.com/", "x"],
    )
    def test_a_link_that_cannot_be_handed_out_is_refused(self, browse, inside, url):
        assert "cannot be offered" in browse().post(f"{BOOKING}set/", {"url": url}).text
        with inside():
            assert booking.secret() is None

    def test_reading_it_over_the_api_needs_one_scope_and_writing_another(self, api):
        client, path = api("read"), "/api/admin/tools/booking"
        assert client.get(path).json() == {"enabled": False, "url": None}
        assert client.post(path, {"url": "https://cal.example.com/team"}).status_code == 403
        assert client.client.delete(path, headers=client.headers).status_code == 403

    def test_it_works_over_the_api(self, api):
        client, path = api(), "/api/admin/tools/booking"
        assert client.get(path).json() == {"enabled": False, "url": None}
        set_to = {"enabled": True, "url": "https://cal.example.com/team"}
        assert client.post(path, {"url": "https://cal.example.com/team"}).json() == set_to
        assert client.get(path).json() == set_to
        refused = client.post(path, {"url": "http://cal.example.com/"})
        assert (refused.status_code, refused.json()["errors"][0]["path"]) == (400, "url")
        assert client.client.delete(path, headers=client.headers).json() == {"enabled": False, "url": None}


class TestApi:
    def test_the_list_names_every_kind_with_its_flags(self, api, row):
        found = {tool["name"]: tool for tool in api("read").get("/api/admin/tools").json()["tools"]}
        assert (
            found["get_order"] | {"id": row.pk, "kind": "http", "enabled": True, "mode": "auto"} == found["get_order"]
        )
        assert found["offer_booking_link"]["enabled"] is False

    def test_definitions_go_out_and_come_in(self, api, row):
        client, path = api(), "/api/admin/tools/definitions"
        array = client.get(path).json()
        assert client.post(path, array).json() == [
            {"id": row.pk, "name": "get_order", "version": 1, "missingSecrets": []}
        ]
        refused = client.post(path, [definition(url="nonsense")])
        assert refused.status_code == 400
        assert refused.json()["errors"][0]["path"] == "[0].url"

    def test_secrets_go_in_and_never_come_out(self, api):
        client, path = api(), "/api/admin/secrets"
        answers = [
            client.post(path, {"name": "SHOP_KEY", "value": "canary-4711"}),
            client.get(path),
            client.post(path, {"name": "bad name", "value": "canary-4711"}),
        ]
        assert [answer.status_code for answer in answers] == [200, 200, 400]
        assert not any("canary" in answer.text for answer in answers)
        assert [secret["name"] for secret in answers[1].json()["secrets"]] == ["SHOP_KEY"]
        one = f"{path}/{answers[0].json()['id']}"
        assert client.client.delete(one, headers=client.headers).status_code == 204
        assert client.client.delete(one, headers=client.headers).status_code == 404


READS = (PAGE, BOOKING, PAGE + "{pk}/")
ADMIN_READS = (
    PAGE + "new/",
    PAGE + "new/?as=json",
    PAGE + "{pk}/edit/",
    PAGE + "{pk}/edit/?as=json",
    PAGE + "export.json",
)
WRITES = (
    PAGE + "create/", PAGE + "check/", PAGE + "import/", PAGE + "limits/", PAGE + "scripts/",
    PAGE + "switch/", PAGE + "{pk}/save/", PAGE + "{pk}/enable/", PAGE + "{pk}/delete/",
    PAGE + "{pk}/try/", PAGE + "{pk}/restore/1/", BOOKING + "set/", BOOKING + "remove/",
)  # fmt: skip


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_lesser_roles_read_what_holds_no_key_and_change_nothing(browse, row, role):
    client = browse(role)
    for path in READS:
        response = client.get(path.format(pk=row.pk))
        assert response.status_code == 200
        assert LITERAL not in response.text
    for path in ADMIN_READS:
        assert client.get(path.format(pk=row.pk)).status_code == 403
    for path in WRITES:
        assert client.post(path.format(pk=row.pk), FORM).status_code == 403, path


def test_outsiders_and_other_tenants_get_404(outsider, row):
    for path in (*READS, *ADMIN_READS):
        assert outsider.get(path.format(pk=row.pk)).status_code == 404
    for path in WRITES:
        assert outsider.post(path.format(pk=row.pk)).status_code == 404
        if "{pk}" in path:
            assert outsider.post(path.format(pk=row.pk).replace("acme", "globex"), FORM).status_code == 404


def test_every_admin_page_answers(browse, row):
    for path in (*READS, *ADMIN_READS):
        assert browse().get(path.format(pk=row.pk)).status_code == 200


def test_the_list_costs_the_same_for_one_tool_and_for_twenty(browse, row, tenant, admin, django_assert_num_queries):
    client = browse()
    client.get(PAGE)
    with CaptureQueriesContext(connection) as one:
        client.get(PAGE)
    with tenant_scope(tenant):
        for number in range(20):
            tools.save_tool(definition(name=f"t{number}", headers={"X": "{secret:K}"}), actor=admin)
    with django_assert_num_queries(len(one)):
        client.get(PAGE)
