"""Models of a tenant: kept with their key sealed, chosen for a turn, and tried against servers of many kinds (R23)."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from django.core.exceptions import ValidationError

from engine.providers.scripted import ScriptedServer
from tenants import endpoints, outbound
from tenants.models import AuditEvent, ModelEndpoint, Secret
from tenants.probe import ProbeReport, probe_endpoint
from tenants.scope import tenant_scope
from tenants.versions import current_version

PAGE = "/t/acme/models/"
API = "/api/admin/models"
PUBLIC = "https://llm.example.com/v1"
KEY = "sk-canary-4711"


def data(**fields) -> endpoints.EndpointData:
    return endpoints.EndpointData(**{"label": "fast", "base_url": PUBLIC, "model": "tiny"} | fields)


@contextmanager
def serving(*script: str) -> Iterator[ScriptedServer]:
    """A scripted model server on loopback, in a loop of its own."""
    ready, loop = threading.Event(), asyncio.new_event_loop()
    server = ScriptedServer(script)

    async def serve() -> None:
        async with server:
            ready.set()
            await stop.wait()

    stop = asyncio.Event()
    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    ready.wait(5)
    try:
        yield server
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(5)
        loop.close()


@pytest.fixture
def admin(member):
    return member("admin").user


@pytest.fixture
def loopback(settings):
    """`loopback(server)` lets tenants reach this server."""

    def allow(server: ScriptedServer) -> None:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(server.base_url.split(":")[2].split("/")[0])]

    return allow


class TestKeeping:
    def test_a_key_is_sealed_and_read_for_a_turn_on_record(self, inside, admin):
        with inside():
            saved = endpoints.save_endpoint(data(key=KEY), actor=admin)
            assert Secret.objects.get().purpose == "model"
            assert endpoints.read_key(saved.pk, run="turn-9") == KEY
            assert AuditEvent.objects.get(action="secret.used").detail["run"] == "turn-9"

    def test_each_write_raises_the_version(self, inside, admin):
        with inside():
            before = current_version()
            saved = endpoints.save_endpoint(data(), actor=admin)
            assert current_version() == before + 1
            endpoints.delete_endpoint(endpoint=saved, actor=admin)
            assert current_version() == before + 2

    def test_another_path_keeps_the_key_and_another_host_drops_it(self, inside, admin):
        with inside():
            saved = endpoints.save_endpoint(data(key=KEY), actor=admin)
            endpoints.save_endpoint(data(base_url="https://llm.example.com/v2"), actor=admin, pk=saved.pk)
            assert endpoints.read_key(saved.pk, run="r") == KEY
            endpoints.save_endpoint(data(base_url="https://attacker.example/v1"), actor=admin, pk=saved.pk)
            assert endpoints.read_key(saved.pk, run="r") is None
            assert not Secret.objects.exists()

    @pytest.mark.parametrize(
        ("fields", "field"),
        [
            ({"base_url": "http://127.0.0.1:11434/v1"}, "base_url"),
            ({"base_url": "http://169.254.169.254/v1"}, "base_url"),
            ({"base_url": "https://user:pass@llm.example.com/v1"}, "base_url"),
            ({"base_url": "ftp://llm.example.com"}, "base_url"),
            ({"base_url": "nonsense"}, "base_url"),
            ({"base_url": "https://llm.example.com/v1?key=1"}, "base_url"),
            ({"label": "No Spaces"}, "label"),
            ({"label": ""}, "label"),
            ({"model": ""}, "model"),
            ({"parameters": {"stream": True}}, "parameters"),
            ({"price_prompt": -1.0}, "price_prompt"),
            ({"price_prompt": float("nan")}, "price_prompt"),
        ],
    )
    def test_what_cannot_work_is_refused_by_its_field(self, inside, admin, fields, field):
        with inside():
            with pytest.raises(ValidationError) as caught:
                endpoints.save_endpoint(data(**fields), actor=admin)
            assert field in caught.value.message_dict
            assert not ModelEndpoint.objects.exists()

    def test_what_the_operator_lists_may_be_called(self, inside, admin, settings):
        settings.OUTBOUND_ALLOW_CIDRS, settings.OUTBOUND_ALLOW_PORTS = ["127.0.0.1/32"], [11434]
        with inside():
            assert endpoints.save_endpoint(data(base_url="http://127.0.0.1:11434/v1"), actor=admin).pk

    def test_a_label_is_taken_once_and_so_is_a_source(self, inside, admin):
        with inside():
            endpoints.save_endpoint(data(sources=("api",)), actor=admin)
            with pytest.raises(ValidationError, match="Another model has this label"):
                endpoints.save_endpoint(data(), actor=admin)
            with pytest.raises(ValidationError, match="answered by fast already"):
                endpoints.save_endpoint(data(label="other", sources=("api",)), actor=admin)


class TestChoosing:
    def test_a_label_then_a_source_then_the_first_for_all(self, inside, admin):
        with inside():
            for fields in (
                {"label": "off", "is_enabled": False},
                {"label": "main"},
                {"label": "spare"},
                {"label": "expert", "sources": ("expert",)},
            ):
                endpoints.save_endpoint(data(**fields), actor=admin)
            assert endpoints.choose().label == "main"
            assert endpoints.choose(source="api").label == "main"
            assert endpoints.choose(source="expert").label == "expert"
            assert endpoints.choose(label="spare", source="expert").label == "spare"
            assert endpoints.choose(label="off") is None
            assert endpoints.choose(label="nobody") is None

    def test_without_one_there_is_none(self, inside):
        with inside():
            assert endpoints.choose() is None
            assert not endpoints.has_enabled()


def tried(tenant, server: ScriptedServer, admin, **fields) -> ProbeReport:
    with tenant_scope(tenant):
        saved = endpoints.save_endpoint(data(base_url=server.base_url, **fields), actor=admin)
        key, guard = endpoints.read_key(saved.pk, run="test"), outbound.guard()
    return asyncio.run(probe_endpoint(endpoints.chosen(saved), guard, key))


def verdicts(report: ProbeReport) -> dict[str, str]:
    return {finding.what: finding.verdict for finding in report.findings}


class TestProbe:
    def test_structured_calls_and_a_stream(self, tenant, admin, loopback):
        with serving("plain_text", "one_call") as server:
            loopback(server)
            report = tried(tenant, server, admin, key=KEY)
            assert report.works
            assert verdicts(report) == {
                "Answers": "yes", "Streaming": "yes", "Tool calls": "yes", "Structured calls": "yes",
                "Text calls": "yes",
            }  # fmt: skip
            assert {ask.headers["authorization"] for ask in server.asked} == {f"Bearer {KEY}"}

    def test_calls_in_the_text_are_read_and_the_flag_is_named(self, tenant, admin, loopback):
        with serving("plain_text", "text_call:hermes") as server:
            loopback(server)
            report = tried(tenant, server, admin)
        assert report.works
        assert verdicts(report)["Structured calls"] == "no"
        assert "--tool-call-parser" in next(f.detail for f in report.findings if f.what == "Structured calls")

    def test_a_call_told_in_words_is_a_likely_mismatch(self, tenant, admin, loopback):
        with serving("plain_text", "prose_call") as server:
            loopback(server)
            report = tried(tenant, server, admin)
        assert not report.works
        assert "described the call instead of making it" in report.findings[-1].detail
        assert "--jinja" in report.findings[-1].detail

    def test_an_empty_stream_is_named(self, tenant, admin, loopback):
        with serving("plain_text", "swallowed_call", "swallowed_call") as server:
            loopback(server)
            report = tried(tenant, server, admin)
        assert verdicts(report)["Stream of calls"] == "warn"
        assert report.works

    def test_a_server_that_is_down_is_told_from_one_that_is_refused(self, tenant, admin, settings, loopback):
        with serving() as server:
            loopback(server)
        report = tried(tenant, server, admin)
        assert "cannot be reached" in report.findings[0].detail
        settings.OUTBOUND_ALLOW_CIDRS = []
        with tenant_scope(tenant):
            chosen, guard = endpoints.chosen(ModelEndpoint.objects.get()), outbound.guard()
        report = asyncio.run(probe_endpoint(chosen, guard, None))
        assert "nobody may call this address" in report.findings[0].detail

    def test_an_echoed_key_is_not_in_the_report(self, tenant, admin, loopback):
        with serving("echoed_key") as server:
            loopback(server)
            report = tried(tenant, server, admin, key=KEY)
        assert KEY not in repr(report)


FORM = {"label": "fast", "base_url": PUBLIC, "model": "tiny", "parameters": '{"temperature": 0.2}', "is_enabled": "on"}


class TestPages:
    def test_a_model_is_added_shown_changed_and_deleted(self, browse, inside):
        client = browse()
        page = client.post(f"{PAGE}create/", FORM | {"key": KEY, "sources": "api, expert"}, follow=True)
        assert "fast is saved" in page.text
        assert PUBLIC in page.text
        assert KEY not in page.text
        with inside():
            saved = ModelEndpoint.objects.select_related("key").get()
            assert saved.sources == ["api", "expert"]
        assert saved.key.fingerprint in page.text
        form = client.get(f"{PAGE}{saved.pk}/edit/").text
        assert KEY not in form
        assert "temperature" in form
        client.post(f"{PAGE}{saved.pk}/save/", FORM | {"model": "large"})
        with inside():
            assert endpoints.read_key(saved.pk, run="r") == KEY
            assert ModelEndpoint.objects.get().model == "large"
        client.post(f"{PAGE}{saved.pk}/save/", FORM | {"drop_key": "on"})
        with inside():
            assert endpoints.read_key(saved.pk, run="r") is None
        client.post(f"{PAGE}{saved.pk}/delete/")
        with inside():
            assert not ModelEndpoint.objects.exists()

    def test_bad_input_is_told_back_and_kept(self, browse):
        page = browse().post(f"{PAGE}create/", FORM | {"base_url": "http://10.0.0.1/v1", "parameters": "{", "key": KEY})
        assert "This is not JSON" in page.text
        assert "http://10.0.0.1/v1" in page.text
        assert KEY not in page.text
        page = browse().post(f"{PAGE}create/", FORM | {"base_url": "http://10.0.0.1/v1"})
        assert "Nobody may call this address" in page.text
        assert "the operator can allow it (OUTBOUND_ALLOW_CIDRS)" in page.text
        page = browse().post(f"{PAGE}create/", FORM | {"base_url": "http://models.example.com:8000/v1"})
        assert "port 8000 is not among the allowed ports; the operator can allow it (OUTBOUND_ALLOW_PORTS)" in page.text

    def test_the_test_button_tells_what_the_server_can(self, browse, tenant, admin, loopback):
        with serving("plain_text", "one_call") as server:
            loopback(server)
            with tenant_scope(tenant):
                saved = endpoints.save_endpoint(data(base_url=server.base_url), actor=admin)
            page = browse().post(f"{PAGE}{saved.pk}/test/")
        assert "fast works with tools" in page.text
        assert "Structured calls" in page.text

    def test_readers_see_the_list_and_may_change_nothing(self, browse, inside, admin):
        with inside():
            saved = endpoints.save_endpoint(data(), actor=admin)
        for role in ("viewer", "operator"):
            client = browse(role)
            assert PUBLIC in client.get(PAGE).text
            for path in ("new/", f"{saved.pk}/edit/"):
                assert client.get(PAGE + path).status_code == 403
            for path in ("create/", f"{saved.pk}/save/", f"{saved.pk}/delete/", f"{saved.pk}/test/"):
                assert client.post(PAGE + path, FORM).status_code == 403

    def test_outsiders_get_404(self, outsider, inside, admin):
        with inside():
            saved = endpoints.save_endpoint(data(), actor=admin)
        assert outsider.get(PAGE).status_code == 404
        for path in (f"{saved.pk}/save/", f"{saved.pk}/delete/", f"{saved.pk}/test/"):
            assert outsider.post(PAGE + path, FORM).status_code == 404
            assert outsider.post(f"/t/globex/models/{path}", FORM).status_code == 404

    def test_the_list_costs_the_same_for_one_and_for_twenty(self, browse, inside, admin, django_assert_num_queries):
        from django.db import connection
        from django.test.utils import CaptureQueriesContext

        client = browse()
        with inside():
            endpoints.save_endpoint(data(key=KEY), actor=admin)
        client.get(PAGE)
        with CaptureQueriesContext(connection) as one:
            client.get(PAGE)
        with inside():
            for number in range(20):
                endpoints.save_endpoint(data(label=f"m{number}", key=KEY), actor=admin)
        with django_assert_num_queries(len(one)):
            client.get(PAGE)


class TestApi:
    BODY = {"label": "fast", "baseUrl": PUBLIC, "model": "tiny"}

    def test_a_model_is_saved_listed_and_deleted_without_its_key(self, api):
        client = api()
        first = client.post(API, self.BODY | {"key": KEY})
        assert first.status_code == 200
        again = client.post(API, self.BODY | {"model": "large"})
        assert again.json()["id"] == first.json()["id"]
        listed = client.get(API)
        assert [(one["label"], one["model"]) for one in listed.json()["models"]] == [("fast", "large")]
        assert listed.json()["models"][0]["keyFingerprint"]
        for answer in (first, again, listed):
            assert KEY not in answer.text
        assert client.client.delete(f"{API}/{first.json()['id']}", headers=client.headers).status_code == 204
        assert client.get(API).json() == {"models": []}

    def test_faults_name_their_field(self, api):
        answer = api().post(API, self.BODY | {"baseUrl": "http://127.0.0.1/v1"})
        assert answer.status_code == 400
        assert [error["path"] for error in answer.json()["errors"]] == ["base_url"]

    def test_reading_needs_one_scope_and_writing_another(self, api):
        reader, writer = api("read"), api("settings:write")
        assert reader.get(API).status_code == 200
        refused = reader.post(API, self.BODY)
        assert refused.status_code == 403
        assert "settings:write" in refused.json()["detail"]
        assert writer.get(API).status_code == 403
        assert writer.post(API, self.BODY).status_code == 200

    def test_a_lesser_role_does_not_write_with_any_token(self, api, member):
        assert api(member=member("operator")).post(API, self.BODY).status_code == 403

    def test_another_tenants_model_is_none(self, api, member, other_tenant):
        pk = api().post(API, self.BODY).json()["id"]
        stranger = api(member=member("admin", tenant=other_tenant))
        assert stranger.get(API).json() == {"models": []}
        assert stranger.post(f"{API}/{pk}/test").status_code == 404
        assert stranger.client.delete(f"{API}/{pk}", headers=stranger.headers).status_code == 404
