"""Runs: within the budget, in slices, under a fence; and what people make of suggestions."""

import datetime as dt
import json
from contextlib import contextmanager

import pytest
from django.core.exceptions import ValidationError
from django.urls import reverse
from django.utils import timezone

from engine.providers.protocol import Usage
from engine.providers.wire import Completion
from quality import tasks
from quality.models import Feedback, FeedbackEvent, ReviewQueue, Suggestion, SuggestionRun, Turn
from quality.review.items import item_of_call, item_of_turn
from quality.review.labelling import record_label, undo
from quality.review.queues import adding
from quality.review.suggesting import asking, candidates, runs, shown
from quality.review.suggesting.asking import Opinion
from tenants import endpoints
from tenants.models import AuditEvent, Role, Scope
from tenants.scope import tenant_scope
from tests.factories import ToolCallFactory, ToolsetFactory, TurnFactory
from tests.turns.servers import scripted_model

State = Suggestion.State


@pytest.fixture
def admin(member):
    return member(Role.ADMIN).user


@pytest.fixture
def published(monkeypatch):
    sent = []
    for name in ("publish", "publish_aside"):
        monkeypatch.setattr(tasks, name, lambda task, *args: sent.append((task.name, *args)))
    return sent


def answer(label="bad_args", confidence=0.8, reason="Zurich was asked for."):
    return Completion(json.dumps({"reason": reason, "label": label, "confidence": confidence}))


@contextmanager
def model(tenant, settings, *script):
    with scripted_model(*script) as server:
        settings.OUTBOUND_ALLOW_CIDRS = ["127.0.0.1/32"]
        settings.OUTBOUND_ALLOW_PORTS = [int(server.base_url.split(":")[2].split("/")[0])]
        with tenant_scope(tenant):
            data = endpoints.EndpointData(label="expert", base_url=server.base_url, model="tiny", key="sk-canary-4711")
            endpoints.save_endpoint(data, actor=None)
        yield server


def data_of(asked):
    """What the model was given to judge."""
    return json.loads(asked.messages[1]["content"].removesuffix(asking.CLOSING))


def start(tenant, admin, **fields):
    with tenant_scope(tenant):
        return runs.start(**{"endpoint_label": "expert", "max_items": 50, "by": admin} | fields)


def seen(tenant, run):
    with tenant_scope(tenant):
        return runs.with_outcomes([run.pk]).get()


def calls(tenant, number, **fields):
    with tenant_scope(tenant):
        return [ToolCallFactory(**fields) for _ in range(number)]


def suggestions(tenant):
    with tenant_scope(tenant):
        return list(Suggestion.objects.order_by("pk"))


def test_unlabelled_items_of_a_filter_are_judged_newest_first(tenant, admin, published, settings) -> None:
    tools = [{"type": "function", "function": {"name": "find", "description": "Finds.", "parameters": {}}}]
    with tenant_scope(tenant):
        toolset = ToolsetFactory(tools=json.dumps(tools))
        found = [ToolCallFactory(tool_name="find", toolset=toolset) for _ in range(6)]
        ToolCallFactory(tool_name="other")
        record_label(item=item_of_call(found[2].pk), reviewer=admin, label="good_reply")
    with model(tenant, settings, *[answer()] * 5) as server:
        run = start(tenant, admin, query="tool=find")
        assert published == [("quality.tasks.run_suggestions", tenant.pk, run.pk)]
        runs.run(run.pk, tenant=tenant)
    run = seen(tenant, run)
    assert (run.state, run.ended_why, run.num_items, run.num_failed, run.undecided) == ("done", "all", 5, 0, 5)
    assert run.prompt_tokens > 0
    made = suggestions(tenant)
    assert {one.call_id for one in made} == {call.pk for call in found} - {found[2].pk}
    assert (made[0].label, made[0].confidence, made[0].reason, made[0].model) == (
        "bad_args", 0.8, "Zurich was asked for.", "tiny",
    )  # fmt: skip
    asked = data_of(server.asked[0])
    assert [tool["name"] for tool in asked["toolsOffered"]] == ["find"]
    assert asked["judge"]["tool"] == "find"
    with tenant_scope(tenant):
        assert not Feedback.objects.exclude(reviewer=admin).exists()
        assert FeedbackEvent.objects.count() == 1  # a suggestion is never a label


def test_a_second_run_passes_over_what_is_judged(tenant, admin, published, settings) -> None:
    calls(tenant, 3)
    with model(tenant, settings, *[answer()] * 4) as server:
        for _ in range(2):
            runs.run(start(tenant, admin).pk, tenant=tenant)
        assert len(server.asked) == 3
    assert len(suggestions(tenant)) == 3


def test_replies_without_a_call_are_judged_too(tenant, admin, published, settings) -> None:
    with tenant_scope(tenant):
        turn = TurnFactory(num_calls=0)
    with model(tenant, settings, answer("missing_tool")):
        runs.run(start(tenant, admin).pk, tenant=tenant)
    (made,) = suggestions(tenant)
    assert (made.turn_id, made.call_id, made.label) == (turn.pk, None, "missing_tool")


def test_the_budget_of_items_and_of_tokens_is_kept(tenant, admin, published, settings) -> None:
    calls(tenant, 9)
    with model(tenant, settings, *[answer()] * 9) as server:
        run = start(tenant, admin, max_items=3)
        runs.run(run.pk, tenant=tenant)
        assert (seen(tenant, run).num_items, seen(tenant, run).ended_why, len(server.asked)) == (3, "items", 3)
        with tenant_scope(tenant):
            run = runs.start(endpoint_label="expert", max_items=9, max_tokens=1_000, by=admin)
            SuggestionRun.objects.filter(pk=run.pk).update(prompt_tokens=990)
        runs.run(run.pk, tenant=tenant)
        run = seen(tenant, run)
    assert (run.ended_why, run.num_items) == ("tokens", 1)  # what was under way was paid


def test_a_queue_is_judged_in_its_order_and_a_blind_one_is_refused(tenant, admin, published, settings) -> None:
    found = calls(tenant, 3)
    with tenant_scope(tenant):
        queue = ReviewQueue.objects.create(name="Errors", created_by=admin, guidelines="Be strict about cities.")
        adding.put_in(queue, [item_of_call(call.pk) for call in found[:2]], actor=admin)
        blind = ReviewQueue.objects.create(name="Blind", created_by=admin, is_blind=True)
    with model(tenant, settings, *[answer()] * 3) as server:
        with pytest.raises(ValidationError, match="blind"):
            start(tenant, admin, queue_id=blind.pk)
        runs.run(start(tenant, admin, queue_id=queue.pk).pk, tenant=tenant)
        assert "Be strict about cities." in data_of(server.asked[0])["guidelines"]
    assert {one.call_id for one in suggestions(tenant)} == {call.pk for call in found[:2]}


def test_an_answer_that_cannot_be_used_is_asked_for_again_and_then_passed_over(
    tenant, admin, published, settings
) -> None:
    calls(tenant, 1)
    with model(tenant, settings, Completion("No."), answer()) as server:
        runs.run(start(tenant, admin).pk, tenant=tenant)
        assert "no JSON object" in server.asked[1].messages[-1]["content"]
    assert len(suggestions(tenant)) == 1
    calls(tenant, 1)
    with model_again(tenant, settings, Completion("No."), Completion("Still no.")):
        run = start(tenant, admin, endpoint_label="second")
        runs.run(run.pk, tenant=tenant)
    run = seen(tenant, run)
    assert (run.state, run.num_items, run.num_failed) == ("done", 0, 1)


@contextmanager
def model_again(tenant, settings, *script):
    with scripted_model(*script) as server:
        settings.OUTBOUND_ALLOW_PORTS = [int(server.base_url.split(":")[2].split("/")[0])]
        with tenant_scope(tenant):
            data = endpoints.EndpointData(label="second", base_url=server.base_url, model="tiny")
            endpoints.save_endpoint(data, actor=None)
        yield server


def test_a_server_that_is_away_ends_the_run_and_says_why(tenant, admin, published, settings) -> None:
    calls(tenant, 20)
    with model(tenant, settings):
        pass
    run = start(tenant, admin)
    runs.run(run.pk, tenant=tenant)
    run = seen(tenant, run)
    assert run.state == "failed"
    assert "did not answer" in run.failure
    assert run.num_failed < 20
    assert "sk-canary-4711" not in run.failure


def test_a_server_that_stays_away_ends_the_run_though_each_slice_sees_it_fail_once(
    tenant, admin, published, settings, monkeypatch
) -> None:
    calls(tenant, 20)
    with model(tenant, settings):
        pass
    monkeypatch.setattr(runs, "SLICE_S", 0.0)
    run = start(tenant, admin)
    for _ in range(runs.MAX_FAILURES):
        assert seen(tenant, run).state == "queued"
        runs.run(run.pk, tenant=tenant)
    run = seen(tenant, run)
    assert (run.state, run.num_failed, "did not answer" in run.failure) == ("failed", runs.MAX_FAILURES, True)


def test_an_answer_that_was_cut_off_says_so_and_the_run_keeps_why(tenant, admin, published, settings) -> None:
    calls(tenant, 2)
    cut = Completion('{"reason": "Zurich was', finish="length")
    with model(tenant, settings, cut, cut, answer()) as server:
        run = start(tenant, admin)
        runs.run(run.pk, tenant=tenant)
        assert "cut off after" in server.asked[1].messages[-1]["content"]
    run = seen(tenant, run)
    assert (run.state, run.num_items, run.num_failed, "max_tokens" in run.failure) == ("done", 1, 1, True)


def test_questions_are_asked_one_by_one_until_the_server_is_known_to_be_quick(
    tenant, admin, published, settings, monkeypatch
) -> None:
    calls(tenant, 7)
    widths = []
    asked = runs._asked

    async def watched(seat, questions):
        widths.append(len(questions))
        return await asked(seat, questions)

    monkeypatch.setattr(runs, "_asked", watched)
    with model(tenant, settings, *[answer()] * 7):
        runs.run(start(tenant, admin).pk, tenant=tenant)
    assert widths == [1, 2, 4]
    calls(tenant, 3)
    monkeypatch.setattr(runs, "QUICK_S", 0.0)
    with model_again(tenant, settings, *[answer()] * 3):
        runs.run(start(tenant, admin, endpoint_label="second").pk, tenant=tenant)
    assert widths[3:] == [1, 1, 1]


def test_what_another_run_had_judged_first_does_not_count(tenant, admin, published, settings) -> None:
    (call,) = calls(tenant, 1)
    with model(tenant, settings, answer()), tenant_scope(tenant):
        first, second = (runs._claim(runs.start(endpoint_label="expert", max_items=5, by=admin).pk) for _ in range(2))
        item, opinion = item_of_call(call.pk), Opinion(label="bad_args", confidence=0.5, reason="")
        for claimed in (first, second):
            runs._keep(claimed, [runs.Told(item, opinion, "", Usage())], {}, "tiny", None)
    assert (seen(tenant, first).num_items, seen(tenant, second).num_items) == (1, 0)


@pytest.mark.parametrize("is_queue", [False, True])
def test_items_that_are_deleted_meanwhile_end_no_run(tenant, admin, published, settings, monkeypatch, is_queue) -> None:
    found = calls(tenant, 4)
    with tenant_scope(tenant):
        queue = ReviewQueue.objects.create(name="All", created_by=admin)
        adding.put_in(queue, [item_of_call(call.pk) for call in found], actor=admin)
    following = candidates.following

    def raced(run, limit):
        """The next items; the first time, somebody deletes them right after they were read."""
        told = following(run, limit)
        monkeypatch.setattr(candidates, "following", following)
        Turn.objects.filter(pk__in=[item.turn_id for item in told.items])._raw_delete("default")
        return told

    monkeypatch.setattr(candidates, "following", raced)
    with model(tenant, settings, *[answer()] * 3):
        run = start(tenant, admin, queue_id=queue.pk if is_queue else None)
        runs.run(run.pk, tenant=tenant)
    run = seen(tenant, run)
    assert (run.state, run.num_items, run.num_failed) == ("done", 3, 0)


def test_a_server_without_response_format_is_asked_without_it(tenant, admin, published, settings) -> None:
    calls(tenant, 1)
    with model(tenant, settings, "status:400", answer()) as server:
        runs.run(start(tenant, admin).pk, tenant=tenant)
        assert "response_format" not in server.asked[1].body
    assert len(suggestions(tenant)) == 1


def test_one_that_was_cancelled_writes_nothing_more_and_a_lost_one_is_taken_up(
    tenant, admin, published, settings
) -> None:
    calls(tenant, 2)
    with model(tenant, settings, *[answer()] * 4):
        run = start(tenant, admin)
        with tenant_scope(tenant):
            lost = runs._claim(run.pk)
            assert runs._claim(run.pk) is None
            SuggestionRun.objects.update(leased_until=timezone.now() - dt.timedelta(seconds=1))
        assert list(runs.overdue().values_list("tenant_id", "pk")) == [(tenant.pk, run.pk)]
        runs.run(run.pk, tenant=tenant)
        with tenant_scope(tenant), pytest.raises(runs.NotOurs):
            runs._keep(lost, [], {}, "tiny", None)  # the fence has risen
        assert len(suggestions(tenant)) == 2
        calls(tenant, 1)
        other = start(tenant, admin)
        with tenant_scope(tenant):
            assert runs.cancel(other, by=admin)
            assert not runs.cancel(other, by=admin)
        assert runs.run(other.pk, tenant=tenant) is None
    assert len(suggestions(tenant)) == 2


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"endpoint_label": "nobody"}, "endpoint_label"),
        ({"queue_id": 4711}, "queue"),
        ({"query": "label=lost"}, "query"),
        ({"max_items": 0}, "max_items"),
        ({"max_tokens": 5}, "max_tokens"),
    ],
)
def test_what_cannot_work_is_refused_by_field(tenant, admin, published, settings, fields, path) -> None:
    with model(tenant, settings), pytest.raises(ValidationError) as refused:
        start(tenant, admin, **fields)
    assert list(refused.value.error_dict) == [path]


class TestDecisions:
    @pytest.fixture
    def made(self, tenant, admin, published, settings):
        (call,) = calls(tenant, 1)
        with model(tenant, settings, answer()):
            run = start(tenant, admin)
            runs.run(run.pk, tenant=tenant)
        return call, run

    def test_the_same_label_accepts_another_overrules_and_undo_reopens(self, tenant, admin, member, made) -> None:
        call, run = made
        with tenant_scope(tenant):
            item = item_of_call(call.pk)
            assert shown.suggestion_for(item, admin).label == "bad_args"
            record_label(item=item, reviewer=admin, label="bad_args")
            assert Suggestion.objects.get().state == State.ACCEPTED
            assert shown.suggestion_for(item, admin) is None  # it is decided
            record_label(item=item, reviewer=admin, label="good_reply")
            row = Suggestion.objects.get()
            assert (row.state, row.decided_label, row.decided_by) == (State.OVERRULED, "good_reply", admin)
            record_label(item=item, reviewer=member().user, label="bad_args")  # the first who could decided
            assert Suggestion.objects.get().state == State.OVERRULED
            undo(item=item, reviewer=admin)
            undo(item=item, reviewer=admin)
        assert seen(tenant, run).overruled + seen(tenant, run).accepted <= 1

    def test_who_is_blind_neither_sees_nor_decides(self, tenant, admin, member, made) -> None:
        call, _ = made
        reviewer = member().user
        with tenant_scope(tenant):
            item = item_of_call(call.pk)
            queue = ReviewQueue.objects.create(name="Two", created_by=admin, is_blind=True, labels_needed=2)
            adding.put_in(queue, [item], actor=admin)
            assert shown.suggestion_for(item, reviewer) is None
            record_label(item=item, reviewer=reviewer, label="bad_args")
            assert Suggestion.objects.get().state == State.OPEN

    def test_taken_back_with_its_run(self, tenant, admin, made) -> None:
        _, run = made
        with tenant_scope(tenant):
            runs.delete(run, by=admin)
            assert not Suggestion.objects.exists()
            actions = AuditEvent.objects.filter(action__startswith="suggestions.").values_list("action", flat=True)
            assert set(actions) == {"suggestions.asked", "suggestions.deleted"}


class TestPagesAndApi:
    def test_an_admin_starts_watches_and_takes_back(self, tenant, admin, client, published, settings) -> None:
        client.force_login(admin)
        address = reverse("suggestion-list", kwargs={"slug": "acme"})
        assert "Add a model" in client.get(address).text
        calls(tenant, 1)
        with model(tenant, settings, answer()):
            refused = client.post(address, {"endpoint_label": "expert", "max_items": 0})
            assert refused.status_code == 400
            sent = {"endpoint_label": "expert", "max_items": 5, "query": "?error=no"}
            assert client.post(address, sent).status_code == 302
            page = client.get(address).text
            assert 'hx-trigger="every 2s"' in page
            with tenant_scope(tenant):
                run = SuggestionRun.objects.get()
                assert run.query == "error=no"
            runs.run(run.pk, tenant=tenant)
        progress = client.get(reverse("suggestion-progress", kwargs={"slug": "acme", "pk": run.pk})).text
        assert "every 2s" not in progress
        client.post(reverse("suggestion-cancel", kwargs={"slug": "acme", "pk": run.pk}))
        client.post(reverse("suggestion-delete", kwargs={"slug": "acme", "pk": run.pk}))
        with tenant_scope(tenant):
            assert not SuggestionRun.objects.exists()

    def test_operators_look_and_start_none(self, tenant, member, client) -> None:
        client.force_login(member().user)
        address = reverse("suggestion-list", kwargs={"slug": "acme"})
        assert "Have a model judge in advance" not in client.get(address).text
        assert client.post(address, {}).status_code == 403

    def test_over_the_api(self, tenant, api, member, other_tenant, published, settings) -> None:
        admin = api(Scope.READ, Scope.SETTINGS_WRITE)
        base = "/api/admin/quality/suggestion-runs"
        calls(tenant, 2)
        with model(tenant, settings, *[answer()] * 2):
            refused = admin.post(base, {"model": "nobody", "maxItems": 5})
            assert refused.json()["errors"][0]["path"] == "model"
            run = admin.post(base, {"model": "expert", "maxItems": 5}).json()
            assert (run["state"], run["judged"]) == ("queued", 0)
            runs.run(run["id"], tenant=tenant)
        told = admin.get(f"{base}/{run['id']}").json()
        assert (told["state"], told["judged"], told["undecided"], told["endedWhy"]) == ("done", 2, 2, "all")
        page = admin.get(f"{base}/{run['id']}/suggestions").json()
        assert [one["label"] for one in page["items"]] == ["bad_args", "bad_args"]
        assert page["nextCursor"] is None
        assert admin.get(f"{base}/{run['id']}/suggestions?state=accepted").json()["items"] == []
        assert admin.post(f"{base}/{run['id']}/cancel").status_code == 409
        stranger = api(member=member("admin", tenant=other_tenant))
        for send, path in (
            (stranger.get, f"{base}/{run['id']}"),
            (stranger.get, f"{base}/{run['id']}/suggestions"),
            (stranger.post, f"{base}/{run['id']}/cancel"),
            (stranger.delete, f"{base}/{run['id']}"),
        ):
            assert send(path).status_code == 404
        assert api(Scope.READ).post(base, {"model": "expert", "maxItems": 5}).status_code == 403
        assert admin.delete(f"{base}/{run['id']}").status_code == 204
        assert suggestions(tenant) == []

    def test_a_turn_item_is_found_by_its_cycle(self, tenant, admin) -> None:
        with tenant_scope(tenant):
            turn = TurnFactory(num_calls=0)
            assert shown.suggestion_for(item_of_turn(turn.pk), admin) is None
