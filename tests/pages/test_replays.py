"""Replays on the page: the list with what it cost, the matrix of cases, one case with its samples, trends, the form."""

import datetime as dt
import json
import re

import pytest
from django.urls import reverse

from quality.cases.judge import judge
from quality.cases.judge_model import sha256_of
from quality.models import JudgeVote, Replay, ReplayFinding, ReplaySample, ReplaySchedule
from quality.pages import replays
from quality.replay import matrix, outcome
from quality.replay.matrix import RowFilter
from quality.replay.stored import read_attempt
from tenants.models import AuditEvent, ModelEndpoint
from tenants.scope import tenant_scope
from tests.factories import LATEST, CaseFactory, ToolsetFactory
from tests.pages.conftest import HTMX
from tests.pages.replay_rows import make_replay, make_row, make_sample, make_side, result_of, samples_of

HOSTILE = "<img src=x onerror=alert(1)>\u202eabc"


def address(name="replay-list", *args):
    return reverse(name, args=["acme", *args])


def saying(replay, number, kind):
    return reverse("replay-finding", kwargs={"slug": "acme", "pk": replay.pk, "number": number, "kind": kind})


def stepping(replay, step):
    return reverse("replay-step", kwargs={"slug": "acme", "pk": replay.pk, "step": step})


@pytest.fixture
def model(tenant):
    with tenant_scope(tenant):
        return ModelEndpoint.objects.create(label="small", base_url="http://127.0.0.1:9/v1", model="tiny")


@pytest.fixture
def two_sided(tenant):
    """Four cases on two sides: one got worse, one is flaky, one is in quarantine, one passes."""
    with tenant_scope(tenant):
        comparison = {
            "broken": 1, "mended": 0, "mcnemarP": 1.0, "significantDrop": False,
            "difference": {"mean": -0.25, "interval": [-0.5, 0.0]},
            "warning": "4 cases are too few for a suite-level statement: only named cases are gated.",
        }  # fmt: skip
        gate = {"failed": ["REG-2: newly failing, and more than chance."], "missing": [], "red": ["REG-2"], "open": []}
        sides = ("baseline", "candidate")
        replay = make_replay(
            name="nightly <b>",
            sides=sides,
            exit_code=1,
            num_expected=24,
            result=result_of(sides, verdict="Regression shown.", gate=gate, comparison=comparison),
        )
        worse = {"change": "newly_failing", "is_suspect": True, "is_confirmed": True, "p": 0.01}
        states = {
            1: ("ppp", "ppp", {"standing": "passed", "change": "unchanged"}),
            2: ("ppp", "fif", {"standing": "failed", **worse}),
            3: ("ppp", "ppf", {"standing": "failed", "change": "flaky_changed", "is_flaky": True, "is_must": True}),
            4: ("fff", "ffe", {"standing": "failed", "change": "unchanged", "is_quarantined": True, "num_errors": 1}),
        }
        for before, after, fields in states.values():
            row = make_row(replay, CaseFactory(), **fields)
            samples_of(row, before, side="baseline")
            samples_of(row, after)
        return replay


def numbers(page: str) -> list[int]:
    """The cases of the matrix in their order."""
    return [int(number) for number in re.findall(r'id="REG-(\d+)"', page)]


class TestTheList:
    def test_says_what_ran_what_came_of_it_and_what_it_cost(self, browse, two_sided):
        page = browse("viewer").get(address()).text
        for said in ("baseline-model", "candidate-model", "nightly &lt;b&gt;", "failed", "75 %", "50 % – 95 %", "4 × 3",
                     "12.3k", "0.42", "1 min 23 s"):  # fmt: skip
            assert said in page, said
        assert "New replay" not in page  # a viewer starts nothing

    def test_is_narrowed_by_state_verdict_and_schedule_and_sums_what_is_shown(self, tenant, browse):
        with tenant_scope(tenant):
            schedule = ReplaySchedule.objects.create(name="Nightly", cron="0 2 * * *", sides=[])
            make_replay(name="of a slot", schedule=schedule, slot=LATEST, cost=0.5)
            make_replay(name="by hand", exit_code=3, cost=0.25)
            make_replay(name="still at it", state="running", exit_code=None, result=None, num_expected=8)
        client = browse()
        assert "0.92" not in (whole := client.get(address()).text)
        assert "1.17" in whole  # all three
        for query, there, total in (
            (f"schedule={schedule.pk}", "of a slot", "0.5"),
            ("schedule=none&verdict=incomplete", "by hand", "0.25"),
            ("state=running", "still at it", "0.42"),
        ):
            page = client.get(f"{address()}?{query}").text
            assert [name for name in ("of a slot", "by hand", "still at it") if name in page] == [there]
            assert re.search(rf"<dt>Cost</dt>\s*<dd>\s*{total}\s*</dd>", page), query
        assert "Not a filter, and not used: <bdi>verdit</bdi>" in client.get(f"{address()}?verdit=failed").text

    def test_goes_on_where_a_page_ends_though_many_begin_at_once(self, tenant, browse, monkeypatch):
        monkeypatch.setattr(replays, "PAGE_SIZE", 2)
        with tenant_scope(tenant):
            made = [make_replay().pk for _ in range(5)]
        client, seen, cursor = browse(), [], ""
        while cursor is not None:
            page = client.get(f"{address()}?cursor={cursor}").text
            seen += [int(pk) for pk in re.findall(r'data-row\s+href="/t/acme/replays/(\d+)/"', page)]
            found = re.search(r"cursor=([\w-]+)\" data-key=\"n\"", page)
            cursor = found[1] if found else None
        assert seen == sorted(made, reverse=True)
        assert "not one of ours" in client.get(f"{address()}?cursor=x").text

    def test_teaches_while_it_is_empty(self, tenant, browse, model):
        page = browse().get(address()).text
        assert "make a case of it" in page
        assert "there is one" in page  # a model
        with tenant_scope(tenant):
            CaseFactory()
        assert address("replay-new") in browse().get(address()).text


class TestTheMatrix:
    def test_shows_what_fails_first_and_what_is_quarantined_behind_it(self, browse, two_sided):
        page = browse("viewer").get(address("replay-detail", two_sided.pk)).text
        assert numbers(page) == [2, 3, 4, 1]
        assert "Regression shown." in page
        assert "newly failing, and more than chance" in page
        assert "−25.0 points" in page
        assert "too few for a suite-level statement" in page
        assert page.count('class="mark invalid_call"') >= 1

    def test_chips_count_and_narrow(self, browse, two_sided):
        client = browse()
        detail = address("replay-detail", two_sided.pk)
        for flag, found in (("newly_failing", [2]), ("flaky", [3]), ("failing", [2, 3, 4]), ("errors", [4]),
                            ("invalid_calls", [2]), ("quarantined", [4]), ("must", [3])):  # fmt: skip
            page = client.get(f"{detail}?show={flag}", headers=HTMX).text
            assert numbers(page) == found, flag
            assert re.search(rf"{matrix.FLAGS[flag]} {len(found)}\b", page), flag
        assert numbers(client.get(f"{detail}?show=failing&show=must").text) == [3]
        assert numbers(client.get(f"{detail}?q=reg-4").text) == [4]
        assert "No case is like that" in client.get(f"{detail}?show=newly_passing").text

    def test_a_page_ends_and_the_next_begins_where_it_did(self, tenant, two_sided):
        with tenant_scope(tenant):
            seen, cursor = [], None
            while True:
                page = matrix.find(two_sided, RowFilter(), sides=["baseline", "candidate"], cursor=cursor, page_size=1)
                seen += [row.case.number for row in page.rows]
                if (cursor := page.next) is None:
                    break
        assert seen == [2, 3, 4, 1]

    def test_passes_on_drifted_results_are_found(self, tenant, browse):
        with tenant_scope(tenant):
            replay = make_replay(result=result_of(drifted=["REG-2"]))
            for _ in range(2):
                make_row(replay, CaseFactory(), standing="passed")
        assert numbers(browse().get(f"{address('replay-detail', replay.pk)}?show=drifted").text) == [2]

    def test_progress_is_asked_for_while_it_runs_and_while_it_is_paused(self, tenant, browse):
        with tenant_scope(tenant):
            replay = make_replay(
                state="running", exit_code=None, result=None, num_expected=10, num_finished=4, seconds=8
            )
        client, progress = browse(), address("replay-progress", replay.pk)
        page = client.get(progress, headers=HTMX).text
        assert "4 of 10 samples" in page
        assert "about 12 s left" in page
        assert 'hx-trigger="every 2s"' in page
        with tenant_scope(tenant):
            Replay.objects.update(state="paused")
        paused = client.get(progress, headers=HTMX).text
        assert 'hx-trigger="every 2s"' in paused
        assert "Go on" in paused
        with tenant_scope(tenant):
            Replay.objects.update(state="done", exit_code=3, result=result_of())
        assert "hx-trigger" not in client.get(progress, headers=HTMX).text
        assert client.get(progress).url == address("replay-detail", replay.pk)

    def test_steps_are_taken_once_and_a_late_one_is_told_what_is(self, tenant, browse):
        with tenant_scope(tenant):
            replay = make_replay(state="queued", exit_code=None, result=None, finished_at=None)
        client = browse()
        for step, state, told in (
            ("pause", "paused", "Paused: samples under way end first."),
            ("cancel", "cancelled", "Cancelled."),
            ("pause", "cancelled", "cancelled"),
        ):
            page = client.post(stepping(replay, step), follow=True).text
            with tenant_scope(tenant):
                assert Replay.objects.get().state == state
            assert told in page.split('class="page-head"')[0], step

    def test_one_side_is_shown_beside_the_replay_that_it_was_compared_with(self, tenant, browse):
        with tenant_scope(tenant):
            before = make_replay(name="last week")
            replay = make_replay(baseline_replay=before)
            row = make_row(replay, CaseFactory(), standing="failed", baseline_passes=3, baseline_judged=3)
            samples_of(row, "fff")
        page = browse().get(address("replay-detail", replay.pk)).text
        assert "before: 3 of 3" in page
        assert address("replay-detail", before.pk) in page.split("Asked with")[1].split("</table>")[0]

    def test_where_nothing_was_judged_no_rate_is_shown(self, tenant, browse):
        nothing = {"rate": None, "interval": None, "cases": 1, "undecided": 1}
        with tenant_scope(tenant):
            replay = make_replay(exit_code=3, result=result_of(summaries={"candidate": nothing}))
        for path in (address("replay-detail", replay.pk), address(), address("replay-trends")):
            response = browse().get(path)
            assert response.status_code == 200, path
            assert "incomplete" in response.text

    def test_cancelling_is_asked_once_more_without_a_script_too(self, tenant, browse):
        with tenant_scope(tenant):
            replay = make_replay(state="running", exit_code=None, result=None)
        page = browse().get(f"{address('replay-detail', replay.pk)}?ask=cancel").text
        assert re.search(r'<dialog id="ask-cancel"[^>]*\bopen>', page)
        assert not re.search(r'<dialog id="ask-retry"[^>]*\bopen>', page)


class TestACase:
    def test_shows_what_is_expected_why_it_failed_and_where_each_result_came_from(self, browse, two_sided):
        page = browse("viewer").get(address("replay-case", two_sided.pk, 2)).text
        for said in ("Asks for the weather in Zürich.", "The first reply makes exactly these calls", "all samples",
                     "get_weather was called with city Zurich; expected Zürich.", "recorded for this call",
                     "What is the weather in Zürich?"):  # fmt: skip
            assert said in page, said
        table = page.split("Arguments that are not as expected")[1].split("</table>")[0]
        assert re.search(r"city</bdi>.*Zürich</bdi></ins>.*Zurich</bdi></del>", table, re.DOTALL)
        assert "Expectation disputed" not in page  # a viewer says nothing

    def test_sides_stand_beside_each_other_each_with_its_own_sample(self, browse, two_sided):
        page = browse().get(f"{address('replay-case', two_sided.pk, 3)}?side=candidate&sample=2&other=1").text
        baseline, candidate = page.split('id="side-baseline"')[1].split('id="side-candidate"')
        assert re.search(r'aria-current="true"\s+title="sample 2: passed"', baseline)
        assert re.search(r'aria-current="true"\s+title="sample 3: failed"', candidate)

    def test_next_and_previous_stay_in_the_filter(self, browse, two_sided):
        client = browse()
        there = address("replay-case", two_sided.pk, 3)
        page = client.get(f"{there}?show=failing").text
        assert f'href="{address("replay-case", two_sided.pk, 2)}?show=failing"' in page
        assert f'href="{address("replay-case", two_sided.pk, 4)}?show=failing"' in page
        assert "2 of 3" in page
        alone = client.get(f"{there}?show=must").text
        assert "1 of 1" in alone
        assert 'rel="next"' not in alone

    def test_what_models_wrote_is_text(self, tenant, browse):
        with tenant_scope(tenant):
            case = CaseFactory(behavior=HOSTILE)
            replay = make_replay(name=HOSTILE)
            row = make_row(replay, case, standing="failed", tool_name=HOSTILE)
            sample = make_sample(row, "fail")
            data = json.loads(sample.data)
            data |= {"reply": HOSTILE, "models": [HOSTILE], "notes": [HOSTILE]}
            data["cycles"][0][0] |= {"name": HOSTILE, "arguments": json.dumps({HOSTILE: HOSTILE})}
            sample.data = json.dumps(data)
            sample.reasons[0] |= {"got": HOSTILE, "tool": HOSTILE}
            sample.save()
        client = browse()
        for path in (address(), address("replay-detail", replay.pk), address("replay-case", replay.pk, case.number),
                     address("replay-trends"), f"{address('replay-trends')}?case={case.ref}"):  # fmt: skip
            page = client.get(path).text
            assert "<img" not in page, path
            assert "\u202e" not in page, path

    def test_a_sample_that_cannot_be_read_says_so(self, tenant, browse):
        with tenant_scope(tenant):
            row = make_row(replay := make_replay(), CaseFactory(), standing="failed")
            make_sample(row, "fail", data="{}")
        assert "cannot be read" in browse().get(address("replay-case", replay.pk, row.number)).text

    def test_what_a_judge_said_is_shown_vote_by_vote(self, tenant, browse, model):
        rubric = {"judge": {"rubric": "Names <b>Zürich</b>.", "of": "Zürich"}}
        step = {"tool": "get_weather", "args": {"city": rubric, "unit": {"ignore": True}}}
        with tenant_scope(tenant):
            case = CaseFactory(expectation=json.dumps({"version": 1, "calls": {"mode": "first", "steps": [step]}}))
            replay = make_replay(settings={"judgeLabel": "small"})
            sample = make_sample(make_row(replay, case, standing="failed"))
            record, asked = outcome.cases_of(replay)[0], []
            judge(record.expectation, read_attempt(sample).sample, tools=record.tools, now=record.now, ask=asked.append)
            JudgeVote.objects.create(
                question_sha256=sha256_of(asked[0], "tiny"), model="tiny", prompt_sha256="", rubric_sha256="",
                votes=[{"passed": False, "rationale": HOSTILE, "swapped": True}], verdict=False,
            )  # fmt: skip
        page = browse().get(address("replay-case", replay.pk, case.number)).text
        assert re.search(r"refused\s*</span>", page)
        assert "abc" in page.split("The judge")[-1]
        assert "the two texts were swapped" in page
        assert "<img" not in page
        assert "held against no label of people yet" in page

    def test_a_dispute_needs_a_note_stands_once_and_is_settled(self, tenant, browse, two_sided):
        client = browse()
        dispute = saying(two_sided, 2, "dispute")
        assert "Say what is wrong" in client.post(dispute, {"note": " "}).text
        response = client.post(dispute, {"note": HOSTILE, "back": "show=failing&side=candidate&sample=1"})
        assert response.url == f"{address('replay-case', two_sided.pk, 2)}?show=failing&side=candidate&sample=1"
        page = client.get(response.url).text
        assert "expectation disputed, open" in page
        assert "<img" not in page
        refused = client.post(dispute, {"note": "Mine is better"})
        assert refused.status_code == 409
        assert "in dispute already" in refused.text
        assert numbers(client.get(f"{address('replay-detail', two_sided.pk)}?show=disputed").text) == [2]
        with tenant_scope(tenant):
            finding = ReplayFinding.objects.get()
        settle = address("finding-settle", finding.pk)
        unchanged = client.post(settle, {"outcome": "changed", "note": "I did"})
        assert unchanged.status_code == 400
        assert "I did" in unchanged.text  # stays in the form
        client.post(settle, {"outcome": "holds"})
        with tenant_scope(tenant):
            finding.refresh_from_db()
            assert (finding.is_open, finding.outcome) == (False, "holds")
        assert client.post(settle, {"outcome": "holds"}).status_code == 409

    def test_a_failure_is_confirmed_and_a_pass_is_not(self, tenant, browse, two_sided):
        client = browse()
        with tenant_scope(tenant):
            failed = ReplaySample.objects.filter(replay_case__number=2, side="candidate").first()
            passed = ReplaySample.objects.filter(replay_case__number=1, side="candidate").first()
        client.post(saying(two_sided, 2, "confirm"), {"sample": failed.pk})
        refused = client.post(saying(two_sided, 1, "confirm"), {"sample": passed.pk})
        assert "did not fail" in refused.text
        with tenant_scope(tenant):
            assert ReplayFinding.objects.get().sample_id == failed.pk


class TestTrends:
    def test_of_a_suite_mark_where_something_else_was_asked(self, tenant, browse):
        with tenant_scope(tenant):
            for day, side in enumerate("aab"):
                at = LATEST + dt.timedelta(days=day)
                replay = make_replay(
                    sides=(), name=f"run {day}", query="tool=x", created_at=at, result=result_of(["candidate"])
                )
                make_side(replay, same_sha256=side * 64)
            make_replay(name="of another suite")
        page = browse("viewer").get(f"{address('replay-trends')}?suite=query-tool%3Dx").text
        assert page.count("other side") == 1
        assert re.findall(r"run \d", page) == ["run 2", "run 1", "run 0"]
        assert "of another suite" not in page
        assert page.count("trend-dot") == 3
        assert page.count("side-change") == 1

    def test_of_a_case_count_passes_over_runs_and_mark_its_changes(self, tenant, browse):
        with tenant_scope(tenant):
            case = CaseFactory()
            for version, passes in ((1, 3), (1, 2), (2, 0)):
                make_row(make_replay(), case, version=version, candidate_passes=passes, candidate_judged=3)
        page = browse("viewer").get(f"{address('replay-trends')}?case=reg-{case.number}").text
        assert re.findall(r"(\d) of 3", page) == ["0", "2", "3"]
        assert page.count("changed</span>") == 1
        for state in ("failing", "flaky", "passing"):
            assert f">{state}</span>" in page
        assert "There is no case REG-9" in browse().get(f"{address('replay-trends')}?case=REG-9").text

    def test_teach_while_there_is_nothing(self, tenant, browse):
        assert "No replay came to a verdict yet" in browse().get(address("replay-trends")).text


class TestDoors:
    def pages(self, replay):
        yield address()
        yield address("replay-trends")
        for name in ("replay-detail", "replay-report", "replay-answers"):
            yield address(name, replay.pk)
        yield address("replay-case", replay.pk, 2)

    def test_outsiders_and_ones_own_tenant_do_not_have_anothers_replays(self, browse, outsider, member, two_sided):
        for path in self.pages(two_sided):
            assert outsider.get(path).status_code == 404, path
        for name, *rest in (("replay-detail",), ("replay-case", 2), ("replay-report",), ("replay-answers",)):
            there = reverse(name, args=["globex", two_sided.pk, *rest])
            assert outsider.get(there).status_code == 404, there
        assert "nightly" not in outsider.get(reverse("replay-list", args=["globex"])).text
        form = outsider.get(f"{reverse('replay-new', args=['globex'])}?again={two_sided.pk}")
        assert form.status_code == 404

    def test_a_viewer_reads_and_changes_nothing(self, browse, two_sided):
        viewer = browse("viewer")
        answers = address("replay-answers", two_sided.pk)
        for path in self.pages(two_sided):
            assert viewer.get(path).status_code == (403 if path == answers else 200), path
        for path in (stepping(two_sided, "cancel"), address("replay-estimate"), address("replay-new"),
                     saying(two_sided, 2, "dispute")):  # fmt: skip
            assert viewer.post(path).status_code == 403, path

    def test_what_is_not_there_is_404(self, browse, two_sided):
        client = browse()
        for path in (address("replay-detail", 999), address("replay-case", two_sided.pk, 99),
                     address("replay-report", 999), f"{address('replay-new')}?again=x"):  # fmt: skip
            assert client.get(path).status_code == 404, path

    @pytest.mark.parametrize(("num_cases", "may"), [(3, True), (0, False)])
    def test_what_broke_off_goes_on_and_a_missed_slot_does_not(self, tenant, browse, two_sided, num_cases, may):
        with tenant_scope(tenant):
            Replay.objects.filter(pk=two_sided.pk).update(
                state="failed", failure="The key cannot be read.", exit_code=None, result=None, num_cases=num_cases,
                num_errors=0,
            )  # fmt: skip
        page = browse().get(address("replay-detail", two_sided.pk)).text
        assert ("Go on where it broke off" in page) is may
        assert (address("replay-report", two_sided.pk) in page) is may
        assert (browse().get(address("replay-report", two_sided.pk)).status_code == 200) is may

    def test_answers_are_what_was_stored_line_by_line_and_an_export_on_record(self, tenant, browse, two_sided):
        assert "Answers" not in browse("operator").get(address("replay-detail", two_sided.pk)).text
        lines = b"".join(browse("admin").get(address("replay-answers", two_sided.pk))).splitlines()
        with tenant_scope(tenant):
            assert AuditEvent.objects.filter(action="export.replay_answers", object_id=str(two_sided.pk)).count() == 1
            stored = {sample.data.encode() for sample in ReplaySample.objects.all()}
        assert len(lines) == 24
        assert set(lines) == stored


class TestTheForm:
    def sent(self, **fields):
        usual = {
            "candidate_model": "small", "candidate_tools": "recorded", "against": "none", "concurrency": "2",
            "max_cycles": "8", "on_miss": "stop", "samples": "3",
        }  # fmt: skip
        return {**usual, **fields}

    def test_begins_with_the_filter_of_the_cases_and_tells_what_it_takes(self, tenant, browse, model):
        with tenant_scope(tenant):
            chosen, _ = CaseFactory(tags=["night"]), CaseFactory()
        client = browse()
        assert f"{address('replay-new')}?tag=night" in client.get(f"{address('case-list')}?tag=night").text
        page = client.get(f"{address('replay-new')}?tag=night&label=bad_args&tool=get_weather").text
        assert 'value="night"' in page
        assert re.search(r'value="bad_args"[^>]*checked', page)
        estimate = page.split('id="estimate"')[1]
        assert "1 case<" in estimate  # though no call of this tool is recorded
        assert chosen.ref in estimate
        assert "from the length of the requests" in estimate

    def test_tells_again_as_it_is_changed_and_what_stands_in_the_way(self, tenant, browse, model):
        with tenant_scope(tenant):
            for _ in range(2):
                CaseFactory()
        client = browse()
        estimate = client.post(address("replay-estimate"), self.sent(cases="REG-1, 2", samples="5"), headers=HTMX).text
        assert "2 cases" in estimate
        assert '<td class="num">10</td>' in estimate
        for fields, told in (
            ({"cases": "REG-1, soup"}, "is no case"),
            ({"cases": "7-9"}, "There is no case REG-7, REG-8, REG-9"),
            ({"tag": "nobody"}, "No active case is chosen"),
            ({"against": "side"}, "Choose the model of the baseline"),
            ({"samples": "0"}, "greater than or equal to 1"),
        ):
            assert told in client.post(address("replay-estimate"), self.sent(**fields), headers=HTMX).text, told

    def test_starts_what_it_says(self, tenant, browse, model):
        with tenant_scope(tenant):
            CaseFactory()
        sent = self.sent(name="both", against="side", baseline_model="small", baseline_tools="recorded", cases="1-1",
                         confirm="on", seed="7", budget_calls="50")  # fmt: skip
        response = browse().post(address("replay-new"), sent)
        with tenant_scope(tenant):
            replay = Replay.objects.get()
            assert response.url == address("replay-detail", replay.pk)
            assert (replay.name, replay.state, replay.num_expected) == ("both", "queued", 6)
            assert (replay.settings["seed"], replay.settings["budget"]["calls"]) == (7, 50)
            assert sorted(replay.sides.values_list("name", flat=True)) == ["baseline", "candidate"]

    def test_keeps_what_was_written_where_a_start_is_refused(self, tenant, browse, model):
        with tenant_scope(tenant):
            CaseFactory()
        response = browse().post(address("replay-new"), self.sent(name="mine", budget_cost="5", case_budget_time="9"))
        assert response.status_code == 400
        assert 'value="mine"' in response.text
        field = response.text.split('for="id_budget_cost"')[1].split("</div>")[0]
        assert "needs the prices of the models" in field
        with tenant_scope(tenant):
            assert not Replay.objects.exists()

    def test_same_again_has_the_same_cases_sides_and_settings(self, tenant, browse, model):
        with tenant_scope(tenant):
            for _ in range(5):
                CaseFactory()
            toolset = ToolsetFactory()
        client = browse()
        sent = self.sent(cases="1-3, REG-5", against="side", baseline_model="small", baseline_tools=toolset.sha256,
                         on_miss="fixed", miss_result="none", seed="")  # fmt: skip
        client.post(address("replay-new"), sent)
        with tenant_scope(tenant):
            replay = Replay.objects.get()
        page = client.get(f"{address('replay-new')}?again={replay.pk}").text
        assert 'value="1-3, REG-5"' in page
        assert "4 cases" in page.split('id="estimate"')[1]
        assert re.search(rf'name="baseline_tools".*?value="{toolset.sha256}" selected', page, re.DOTALL)
        assert re.search(r'value="fixed" selected', page)
        seed = re.search(r'<input type="number" name="seed"[^>]*>', page)
        assert seed
        assert "value=" not in seed[0]

    def test_sides_are_swapped_without_a_script(self, tenant, browse, model):
        with tenant_scope(tenant):
            CaseFactory()
            ModelEndpoint.objects.create(label="large", base_url="http://127.0.0.1:9/v1", model="big")
        sent = self.sent(against="side", baseline_model="large", baseline_tools="recorded", do="swap")
        page = browse().post(address("replay-new"), sent).text
        assert re.search(r'name="candidate_model".*?value="large" selected.*?</select>', page, re.DOTALL)
        assert re.search(r'name="baseline_model".*?value="small" selected.*?</select>', page, re.DOTALL)
        with tenant_scope(tenant):
            assert not Replay.objects.exists()

    def test_teaches_where_there_is_nobody_to_ask(self, tenant, browse):
        assert "There is no model to ask" in browse().get(address("replay-new")).text
