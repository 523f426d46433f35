"""A replay from its start to a dispute: a real worker asks a real model server while somebody watches."""

import json
from collections.abc import Callable, Iterator

import pytest
from django.conf import settings

from quality.models import Replay, ReplayCase, ReplayFinding
from tenants.models import Membership, Role, Tenant
from tenants.scope import tenant_scope
from tests.browser.conftest import Desk
from tests.browser.look import amiss
from tests.factories import CaseFactory
from tests.pages.replay_rows import make_replay, make_row, result_of, samples_of
from tests.replay.lab import Lab, Models

pytestmark = pytest.mark.browser
WAIT_MS = 120_000  # a worker that shares its cores


@pytest.fixture
def admin(member: Callable[..., Membership]) -> Membership:
    return member(Role.ADMIN)


@pytest.fixture
def lab(
    worker: None,
    model_server: Models,
    tenant: Tenant,
    admin: Membership,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Lab]:
    """Three cases about the weather; `right` and `wrong` are models."""
    monkeypatch.setattr(settings, "OUTBOUND_ALLOW_CIDRS", ["127.0.0.1/32"], raising=False)
    monkeypatch.setattr(settings, "OUTBOUND_ALLOW_PORTS", [model_server.port], raising=False)
    lab = Lab(tenant, admin.user, model_server)
    lab.endpoint("right")
    lab.endpoint("wrong")
    lab.cases(2, tags=["weather"])
    step = {"tool": "get_weather", "args": {"city": {"equal": "Zurich"}}}
    lab.cases(1, tags=["weather"], expectation=json.dumps({"version": 1, "calls": {"mode": "first", "steps": [step]}}))
    lab.cases(1)
    yield lab
    model_server.gate.set()


def test_from_cases_to_a_disputed_expectation(lab: Lab, admin: Membership, desk: Callable[..., Desk]) -> None:
    ada = desk(admin)
    lab.models.gate.clear()

    # What the list of cases is narrowed to is replayed, on two sides; what it takes is told on the way.
    page = ada.open("/t/acme/cases/?tag=weather")
    ada.press("r")
    page.wait_for_url("**/replays/new/?tag=weather")
    estimate = page.locator("#estimate")
    estimate.get_by_text("3 cases").wait_for()
    page.get_by_label("Nothing: each case has to pass").focus()
    ada.press("ArrowDown")
    page.locator("#id_candidate_model").select_option("wrong")
    page.locator("#id_baseline_model").select_option("right")
    page.get_by_label("Samples of each case").fill("4")
    estimate.get_by_role("row", name="together 24 ").wait_for()
    ada.press("Escape", "s")
    page.wait_for_url("**/replays/*/")

    # It is followed as it runs: paused, let go on, ended, and nobody loads the page again.
    progress = page.locator("#progress")
    progress.get_by_text("of 24 samples").wait_for(timeout=WAIT_MS)
    page.evaluate("window.stayed = true")
    lab.models.gate.set()
    progress.get_by_text("Regression shown.").wait_for(timeout=WAIT_MS)
    assert page.evaluate("window.stayed") is True
    assert "too few for a suite-level statement" in progress.inner_text()
    page.get_by_role("link", name="newly failing 2").wait_for(timeout=WAIT_MS)
    page.get_by_role("link", name="newly passing 1").wait_for()

    # The newly failing ones, one after the other, by keyboard.
    ada.press("1")
    page.wait_for_url("**show=newly_failing")
    assert page.locator("[data-rows] [data-row]").count() == 2
    ada.press("j", "Enter")
    page.wait_for_url("**/REG-1/?show=newly_failing")
    candidate = page.locator("section:has(#side-candidate)")
    assert "get_weather was called with city Zurich; expected Zürich." in candidate.inner_text()
    assert "failed" not in page.locator("section:has(#side-baseline)").inner_text()
    ada.press("d")
    page.keyboard.type("Zurich is what Zürich is called in English.")
    page.keyboard.press("Control+Enter")
    page.locator(".tag", has_text="expectation disputed, open").wait_for()
    ada.press("n")
    page.wait_for_url("**/REG-2/?show=newly_failing")
    ada.press("c")
    page.locator(".tag", has_text="confirmed").last.wait_for()
    ada.press("b")
    page.get_by_role("link", name="disputed 1").wait_for()
    with tenant_scope(lab.tenant):
        kinds = dict(ReplayFinding.objects.values_list("case__number", "kind"))
        assert kinds == {1: "disputed", 2: "confirmed"}
        assert ReplayCase.objects.filter(is_confirmed=True).count() == 2

    # What was stored can be taken away, and the run adds to the trend.
    with page.expect_download() as started:
        ada.press("d")
    report = json.loads(started.value.path().read_text())
    assert report["comparison"]["changes"]["newly_failing"] == 2
    ada.press("t")
    page.locator(".trend-dot").wait_for(state="attached")
    ada.check()


def test_without_a_script_it_is_started_watched_and_cancelled(
    lab: Lab, admin: Membership, desk: Callable[..., Desk]
) -> None:
    ada = desk(admin, java_script_enabled=False)
    lab.models.gate.clear()
    page = ada.open("/t/acme/replays/new/?cases=REG-1")
    page.locator("#id_candidate_model").select_option("right")
    page.get_by_label("Samples of each case").fill("2")
    page.get_by_role("button", name="Estimate again").click()
    assert "REG-1" in page.locator("#estimate").inner_text()
    page.get_by_role("button", name="Start").click()
    page.wait_for_url("**/replays/*/")
    page.get_by_role("button", name="Pause").click()
    page.get_by_text("Paused: samples that were under way end").wait_for()
    page.get_by_role("link", name="Cancel").click()
    page.get_by_role("button", name="Cancel the replay").click()
    page.get_by_text("Cancelled: no verdict.").wait_for()
    with tenant_scope(lab.tenant):
        assert Replay.objects.get().state == "cancelled"


def test_asking_to_cancel_is_a_dialog_that_polling_leaves_alone(
    tenant: Tenant, admin: Membership, desk: Callable[..., Desk]
) -> None:
    with tenant_scope(tenant):
        replay = make_replay(state="running", exit_code=None, result=None, num_expected=4)
    ada = desk(admin)
    page = ada.open("/t/acme/replays/")
    ada.press("j", "Enter")
    page.wait_for_url("**/replays/*/")
    ada.press("z")
    dialog = page.get_by_role("dialog")
    dialog.wait_for()
    with page.expect_response("**/progress/"):
        pass
    assert dialog.is_visible()
    page.keyboard.press("Escape")
    dialog.wait_for(state="hidden")
    ada.press("/")
    page.keyboard.type("REG-1")
    for _ in range(2):  # rows are asked for again and again, and what is typed stays
        with page.expect_response(lambda answer: answer.url.rstrip("?").endswith(f"/replays/{replay.pk}/")):
            pass
    assert page.locator("#f-q:focus").input_value() == "REG-1"
    ada.check()


@pytest.fixture
def furnished(tenant: Tenant) -> list[str]:
    """Replays in every state, and where they are looked at."""
    with tenant_scope(tenant):
        sides = ("baseline", "candidate")
        replay = make_replay(name="A name that is as long as names of replays are", sides=sides, exit_code=1,
                             result=result_of(sides, verdict="Regression shown."))  # fmt: skip
        for verdicts, fields in (
            ("pppppppppp", {"standing": "passed"}),
            ("fidepppppp", {"standing": "undecided", "is_flaky": True, "num_errors": 1}),
            ("ffffffffff", {"standing": "failed", "change": "newly_failing", "is_confirmed": True, "p": 0.01}),
            ("ffffffffff", {"standing": "failed", "is_quarantined": True, "is_must": True}),
        ):
            row = make_row(replay, CaseFactory(), num_samples=10, **fields)
            samples_of(row, "pppppppppp", side="baseline")
            samples_of(row, verdicts)
            samples_of(row, "ffffffffff", first=1_000_000)
        for state in ("queued", "running", "paused", "failed", "cancelled"):
            make_replay(state=state, exit_code=None, result=None, num_expected=9, failure="The model is gone.")
    there, fresh = f"replays/{replay.pk}/", "?side=candidate&sample=1000003"
    return ["replays/", there, f"{there}?show=failing", f"{there}REG-2/", f"{there}REG-3/{fresh}",
            f"replays/new/?again={replay.pk}", "replays/trends/", "replays/trends/?case=REG-2"]  # fmt: skip


def test_pages_are_legible_and_fit(admin: Membership, furnished: list[str], desk: Callable[..., Desk]) -> None:
    ada = desk(admin)
    for path in furnished:
        assert amiss(ada.open(f"/t/acme/{path}")) == [], path
