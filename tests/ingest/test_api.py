import gzip
import io
import json
import zlib

import pytest

from quality.api import ingest
from quality.ingest.compressed import gunzip
from quality.ingest.reader import Unreadable
from quality.models import Feedback, ToolCall
from quality.review.items import item_of_call
from quality.review.labelling import record_label
from tenants.models import AuditEvent, Role
from tenants.scope import tenant_scope
from tests.ingest.helpers import NEUTRAL, lines, state

PATH = "/api/ingest/tool-calls"
NDJSON = "application/x-ndjson"


@pytest.fixture
def client(api):
    return api("ingest:write")


def records(count: int) -> list[dict]:
    return [{**NEUTRAL, "external_id": f"run-{n}"} for n in range(count)]


def report(response) -> tuple[int, int, int, int]:
    body = response.json()
    assert len(body["rejected"]) == body["numRejected"]
    return response.status_code, body["accepted"], body["unchanged"], body["numRejected"]


@pytest.mark.parametrize(
    ("body", "content_type", "count"),
    [
        (json.dumps(NEUTRAL).encode(), "application/json", 1),
        (json.dumps(records(3), indent=1).encode(), "application/json; charset=UTF-8", 3),
        (lines(*records(3)), NDJSON, 3),
        (lines(*records(3)) + b"\r\n\r\n", "application/jsonl", 3),
        (b"[]", "application/json", 0),
    ],
)
def test_records_are_taken_one_or_many(client, tenant, body, content_type, count):
    assert report(client.post(PATH, body, content_type=content_type)) == (200, count, 0, 0)
    assert len(state(tenant)["calls"]) == count
    assert report(client.post(PATH, body, content_type=content_type)) == (200, 0, count, 0)


@pytest.mark.parametrize("as_lines", [True, False])
def test_one_bad_of_a_hundred_is_told_and_the_others_are_stored(client, tenant, as_lines):
    items = lines(*records(100)).split(b"\n")
    items[41] = b'{"external_id":"x","tool_name":"t","args":{"n":01}}'
    body = b"\n".join(items) if as_lines else b"[" + b",\n".join(items) + b"]"
    response = client.post(PATH, body, content_type=NDJSON if as_lines else "application/json")
    assert report(response) == (207, 99, 0, 1)
    (refused,) = response.json()["rejected"]
    assert {name: refused[name] for name in ("index", "line", "code", "path")} == {
        "index": 41,
        "line": 42,
        "code": "malformed_json",
        "path": "args.n",
    }
    assert len(state(tenant)["calls"]) == 99


def test_of_many_records_some_may_be_stored_before(client, tenant):
    def send(*items):
        return report(client.post(PATH, lines(*items), content_type=NDJSON))

    assert send(*records(3), {**NEUTRAL, "external_id": "run-3", "tool_name": "another"}) == (200, 4, 0, 0)
    assert send(*records(150)) == (207, 146, 3, 1)
    assert send(*records(150)) == (207, 0, 149, 1)
    assert len(state(tenant)["calls"]) == 150


def test_another_content_is_a_conflict_of_that_record_alone(client):
    client.post(PATH, records(1))
    response = client.post(PATH, [{**NEUTRAL, "external_id": "run-0", "args": {}}, *records(2)])
    assert report(response) == (207, 1, 1, 1)
    assert response.json()["rejected"][0]["code"] == "conflict"


@pytest.mark.parametrize("many", [False, True])
def test_only_conflicts_are_409_and_nothing_changes(client, tenant, many):
    client.post(PATH, records(2))
    before = state(tenant)
    others = [{**item, "args": {}} for item in records(2)]
    response = client.post(PATH, others if many else others[0])
    assert response.status_code == 409
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert {(error["path"], error["code"]) for error in problem["errors"]} == {("args", "conflict")}
    assert len(problem["errors"]) == problem["numRejected"] == (2 if many else 1)
    assert state(tenant) == before


def test_conflicts_beside_other_refusals_are_400(client):
    client.post(PATH, records(1))
    response = client.post(PATH, [{**records(1)[0], "args": {}}, {"args": {}}])
    assert (response.status_code, [error["code"] for error in response.json()["errors"]]) == (
        400,
        ["conflict", "missing_field"],
    )


def test_the_sender_may_correct_and_ids_labels_and_a_trail_stay(client, tenant):
    sent = {**NEUTRAL, "model": "gpt-x", "contact": "zoe", "result": {"error": "boom"}}
    client.post(PATH, sent)
    with tenant_scope(tenant):
        call = ToolCall.objects.get()
        record_label(item=item_of_call(call.pk), label="bad_args", reviewer=client.member.user)
    correction = {**NEUTRAL, "args": [8], "contact": "joe", "result": "fine"}
    assert client.post(PATH, correction).status_code == 409
    assert report(client.post(PATH, [correction, *records(1)], HTTP_IF_MATCH="*")) == (200, 2, 0, 0)
    with tenant_scope(tenant):
        after = ToolCall.objects.select_related("turn").get(pk=call.pk)
        assert (after.external_id, after.args, after.result, after.is_error, after.error, after.state) == (
            call.external_id,
            "[8]",
            '"fine"',
            False,
            None,
            "result",
        )
        assert (after.model, after.contact_id, after.turn.contact_id) == ("gpt-x", "joe", "joe")
        assert after.warnings == ["args_not_object"]
        assert Feedback.objects.get(call=after).label == "bad_args"
        event = AuditEvent.objects.get(action="evidence.replaced")
        assert (event.object_type, event.object_id, event.token_id) == ("tool_call", str(call.pk), client.token.pk)
        assert event.actor == client.member.user
        assert bytes(event.before_sha256) != bytes(event.after_sha256)
        assert event.detail == {
            "source": "neutral",
            "external_id": "run-1",
            "fields": ["args", "contact", "error", "is_error", "result", "warnings"],
        }
    again = client.post(PATH, correction, HTTP_IF_MATCH="*")
    assert (report(again), again.json()["numReplaced"]) == ((200, 0, 1, 0), 0)
    with tenant_scope(tenant):
        assert AuditEvent.objects.filter(action="evidence.replaced").count() == 1


def test_a_correction_counts_what_it_replaced_and_completes_the_rest(client, tenant):
    client.post(PATH, [records(2)[0], {**records(2)[1], "result": None}])
    response = client.post(PATH, [{**records(1)[0], "args": {}}, records(2)[1], *records(3)[2:]], HTTP_IF_MATCH="*")
    assert report(response) == (200, 3, 0, 0)
    assert response.json()["numReplaced"] == 1


def test_a_place_is_not_corrected(client):
    client.post(PATH, {**NEUTRAL, "index": 1})
    response = client.post(PATH, {**NEUTRAL, "index": 2}, HTTP_IF_MATCH="*")
    assert (response.status_code, response.json()["errors"][0]["path"]) == (409, "index")


def test_two_contents_of_one_new_call_are_a_conflict_even_of_a_correction(client):
    response = client.post(PATH, [NEUTRAL, {**NEUTRAL, "args": {}}], HTTP_IF_MATCH="*")
    assert report(response) == (207, 1, 0, 1)


def test_a_correction_reaches_no_other_tenant(client, api, member, tenant, other_tenant):
    client.post(PATH, NEUTRAL)
    before = state(tenant)
    outsider = api("ingest:write", member=member(tenant=other_tenant))
    answer = outsider.post(PATH, {**NEUTRAL, "args": {}}, HTTP_IF_MATCH="*")
    assert (report(answer), answer.json()["numReplaced"]) == ((200, 1, 0, 0), 0)
    assert state(tenant) == before
    with tenant_scope(other_tenant):
        assert not AuditEvent.objects.filter(action="evidence.replaced").exists()


def test_an_entity_tag_is_412(client, tenant):
    client.post(PATH, NEUTRAL)
    assert client.post(PATH, {**NEUTRAL, "args": {}}, HTTP_IF_MATCH='"abc"').status_code == 412
    assert state(tenant)["calls"][0]["args"] == '{"n": "7"}'


def test_a_missing_result_may_follow(client, tenant):
    client.post(PATH, {**NEUTRAL, "result": None})
    assert report(client.post(PATH, NEUTRAL)) == (200, 1, 0, 0)
    assert state(tenant)["calls"][0]["result"] == '{"status": "sent"}'


@pytest.mark.parametrize(
    ("body", "content_type", "code"),
    [
        (b"", "application/json", "malformed_json"),
        (b" \n", NDJSON, "malformed_json"),
        (b"{", "application/json", "malformed_json"),
        (b'{"tool_name":"t"}{"tool_name":"t"}', "application/json", "malformed_json"),
        (b'\xef\xbb\xbf{"tool_name":"t"}', "application/json", "malformed_json"),
        ('{"tool_name":"t"}'.encode("utf-16"), "application/json", "invalid_utf8"),
        (b'"tool_name"', "application/json", "malformed_json"),
        (b'[{"tool_name":"t"', "application/json", "truncated"),
        (b"[1]", "application/json", "not_an_object"),
        (b'{"messages":[]}', "application/json", "missing_field"),
        (b'{"args":{}}\n{"args":{}}', NDJSON, "missing_field"),
    ],
)
def test_a_body_of_which_nothing_is_stored_is_a_problem(client, tenant, body, content_type, code):
    response = client.post(PATH, body, content_type=content_type, CONTENT_TYPE=content_type)
    assert response.status_code == 400
    assert response.headers["Content-Type"] == "application/problem+json"
    problem = response.json()
    assert problem["errors"][0]["code"] == problem["rejected"][0]["code"] == code
    assert problem["accepted"] == 0
    assert problem["detail"]
    assert state(tenant)["turns"] == []


def test_what_came_before_a_break_is_stored_and_the_break_is_told(client):
    response = client.post(PATH, b'[{"tool_name":"t"}\n{"tool_name":"t"}]')
    assert report(response) == (207, 1, 0, 1)
    refused = response.json()["rejected"][0]
    assert (refused["index"], refused["line"]) == (1, 2)


def test_a_record_too_large_is_413_and_loses_only_itself(client):
    huge = {**NEUTRAL, "args": {"text": "x" * 5 * 1024 * 1024}}
    alone = client.post(PATH, huge)
    assert (alone.status_code, alone.json()["errors"][0]["code"]) == (413, "too_large")
    assert report(client.post(PATH, lines(huge, *records(2)), content_type=NDJSON)) == (207, 2, 0, 1)


def test_a_body_too_large_is_413(client, settings):
    settings.IMPORT_MAX_BYTES = 1000
    response = client.post(PATH, lines(*records(50)), content_type=NDJSON)
    assert (response.status_code, response.json()["errors"][0]["code"]) == (413, "too_large")
    packed = client.post(PATH, gzip.compress(lines(*records(50))), content_type=NDJSON, HTTP_CONTENT_ENCODING="gzip")
    assert packed.status_code == 413


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/x-protobuf", "application/json; charset=latin-1", ""]
)
def test_another_content_type_is_415(client, content_type):
    assert client.post(PATH, b"{}", content_type=content_type).status_code == 415


def test_a_body_may_come_compressed(client):
    body = gzip.compress(lines(*records(1500)))
    response = client.post(PATH, body, content_type=NDJSON, HTTP_CONTENT_ENCODING="gzip")
    assert report(response) == (200, 1500, 0, 0)
    assert client.post(PATH, b"{}", HTTP_CONTENT_ENCODING="br").status_code == 415
    bad = client.post(PATH, b'{"tool_name":"t"}', HTTP_CONTENT_ENCODING="gzip")
    assert (bad.status_code, bad.json()["errors"][0]["code"]) == (400, "malformed_gzip")
    cut = client.post(PATH, body[:-30], content_type=NDJSON, HTTP_CONTENT_ENCODING="gzip")
    assert cut.json()["rejected"][-1]["code"] == "truncated"


def test_compressed_bytes_are_unpacked_in_small_steps():
    packed = zlib.compress(b"\0" * 50_000_000, wbits=31) + gzip.compress(b"end")
    read = gunzip(io.BytesIO(packed).read)
    pieces = list(iter(lambda: len(read(1000)), 0))
    assert max(pieces) <= 1000
    assert sum(pieces) == 50_000_003
    for cut in (packed[:1000], b""):
        unpack = gunzip(io.BytesIO(cut).read)
        with pytest.raises(Unreadable):
            list(iter(lambda unpack=unpack: unpack(1_000_000), b""))


def test_many_refusals_are_counted_and_the_first_are_told(client, monkeypatch):
    monkeypatch.setattr(ingest, "MAX_TOLD", 10)
    response = client.post(PATH, b"{\n" * 2_500, content_type=NDJSON)
    body = response.json()
    assert (response.status_code, body["numRejected"], len(body["rejected"])) == (400, 2_500, 10)
    assert [item["index"] for item in body["rejected"]] == list(range(10))


def test_a_token_without_the_scope_or_the_role_sends_nothing(api, member, tenant):
    assert api("read").post(PATH, NEUTRAL).status_code == 403
    assert api("ingest:write", member=member(Role.VIEWER)).post(PATH, NEUTRAL).status_code == 403
    stranger = api("ingest:write")
    stranger.headers = {"Authorization": stranger.headers["Authorization"][:-1] + "x"}
    assert stranger.post(PATH, NEUTRAL).status_code == 401
    stranger.headers = {}
    assert stranger.post(PATH, NEUTRAL).status_code == 401
    assert state(tenant)["calls"] == []


def test_records_land_in_the_tenant_of_the_token_whatever_they_say(api, member, tenant, other_tenant):
    outsider = api("ingest:write", member=member(tenant=other_tenant))
    assert outsider.post(PATH, {**NEUTRAL, "tenant": "acme"}).status_code == 200
    assert api("ingest:write").post(PATH, {**NEUTRAL, "args": {"another": "content"}}).status_code == 200
    with tenant_scope(other_tenant):
        assert ToolCall.objects.get().args == '{"n": "7"}'
    with tenant_scope(tenant):
        assert ToolCall.objects.get().args == '{"another": "content"}'


def test_only_post_is_served(client):
    assert client.get(PATH).status_code == 405


def test_a_dry_run_says_what_is_understood_and_stores_nothing(client, tenant):
    items = [NEUTRAL, {"external_id": "run-2", "tool_name": "wait"}, {"tool_name": "t", "cycle": -1}]
    response = client.post(f"{PATH}?dry_run=true", lines(*items), content_type=NDJSON)
    body = response.json()
    assert response.status_code == 200
    assert [body[name] for name in ("isWhole", "numItems", "numTurns", "numCalls", "numResults", "numRejected")] == [
        True, 3, 2, 2, 1, 1,
    ]  # fmt: skip
    assert body["rejected"][0]["path"] == "cycle"
    assert {"code": "no_result", "count": 1, "meaning": "No result was recorded."} in body["warnings"]
    many = client.post(f"{PATH}?dry_run=true", gzip.compress(lines(*records(5_000))), content_type=NDJSON,
                       HTTP_CONTENT_ENCODING="gzip").json()  # fmt: skip
    assert (many["isWhole"], many["numItems"], many["failure"]) == (False, 500, "")
    assert state(tenant)["calls"] == []
    wrong = client.post(f"{PATH}?dry_run=perhaps", lines(NEUTRAL), content_type=NDJSON)
    assert (wrong.status_code, wrong.json()["detail"]) == (400, "dry_run is true or false, not 'perhaps'.")
    assert client.post(f"{PATH}?dry_run=false", lines(NEUTRAL), content_type=NDJSON).json()["accepted"] == 1
