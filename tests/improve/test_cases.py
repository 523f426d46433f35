"""Cases: what is taken over from a label, how they change, and what they keep of where they come from."""

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.exceptions import ValidationError
from django.db import connection

from quality.calls import BadCursor
from quality.improve import cases, proposals
from quality.improve.case_store import MAX_TAGS
from quality.improve.cases import (
    AlreadyArchived,
    CaseFilter,
    NoSuchCase,
    NotArchived,
    StaleCase,
    case_from_feedback,
    draft_from,
    judge_recorded,
    record_of,
)
from quality.improve.proposals import AlreadyDecided
from quality.models import Case, CaseVersion, Proposal
from tenants.models import AuditEvent, Tenant, User
from tenants.scope import tenant_scope
from tests.factories import (
    CaseFactory,
    FeedbackFactory,
    ProposalFactory,
    ToolCallFactory,
    ToolsetFactory,
    TurnFactory,
    UserFactory,
)

CORRECTION = '{"arguments": {"city": "Bern", "unit": "celsius"}}'
USER = '{"role":"user","content":"Weather  in Zürich?"}'
ASKS = (
    '{"role":"assistant","content":null,"tool_calls":[{"id":"1","function":{"name":"get_weather","arguments":"{}"}}]}'
)
ANSWER = '{"role":"tool","tool_call_id":"1","content":"sunny"}'
SAYS = '{"role":"assistant","content":"It is sunny."}'


@pytest.fixture(autouse=True)
def scope(tenant: Tenant) -> Iterator[None]:
    with tenant_scope(tenant):
        yield


@pytest.fixture
def ada(db: None) -> User:
    return UserFactory(name="Ada")


def code_of(error: pytest.ExceptionInfo[ValidationError]) -> dict[str, str | None]:
    return {field: found[0].code for field, found in error.value.error_dict.items()}


# --- drafts ----------------------------------------------------------------------------------------------------------


def test_a_draft_has_all_that_the_model_was_given() -> None:
    turn = TurnFactory(
        system='"Be  nice.\\n"', history=f"[{SAYS}]", messages=f"[ {USER},{ASKS}, {ANSWER},{SAYS}]", num_cycles=2
    )
    call = ToolCallFactory(turn=turn, args='{"city": "Zürich",  "n": 1.50}')
    draft = draft_from(FeedbackFactory(call=call, correction=CORRECTION, reviewer__name="Ada"))
    assert draft.messages == f'[{{"role":"system","content":"Be  nice.\\n"}},{SAYS},{USER}]'
    assert (draft.args, draft.result, draft.is_error) == (call.args, call.result, False)
    assert (draft.cycle, draft.index, draft.now) == (0, 0, call.started_at)
    assert draft.tools == turn.toolset.tools
    assert json.loads(draft.context) == {
        "conversationId": turn.conversation_id,
        "messageId": turn.message_id,
        "styleId": "friendly",
        "model": "tiny-model",
        "source": "openai_chat",
        "proposalId": None,
        "reviewer": "Ada",
    }
    assert draft.behavior == "Calls get_weather with the corrected arguments."


def test_of_a_later_reply_the_input_ends_right_before_it() -> None:
    turn = TurnFactory(system=None, messages=f"[{USER},{ASKS},{ANSWER},{ASKS},{ANSWER},{SAYS}]", num_cycles=3)
    call = ToolCallFactory(turn=turn, cycle=1)
    assert draft_from(FeedbackFactory(call=call)).messages == f"[{USER},{ASKS},{ANSWER}]"


def test_without_a_history_of_its_own_the_turns_before_are_it() -> None:
    at = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
    said = {"conversation_id": "c", "system": None}
    for position in range(3):
        TurnFactory(**said, messages=f"[{json.dumps(position)}]", started_at=at, position=position)
    TurnFactory(**said, messages='["another source"]', started_at=at, source="other")
    turn = TurnFactory(**said, messages=f"[{USER},{ASKS}]", started_at=at, position=3)
    TurnFactory(**said, messages='["later"]', started_at=at, position=4)
    draft = draft_from(FeedbackFactory(call=ToolCallFactory(turn=turn)))
    assert draft.messages == f"[0,1,2,{USER}]"


def test_results_of_the_turn_become_stubs_as_they_are_spelled() -> None:
    turn = TurnFactory()
    call = ToolCallFactory(turn=turn, args='{"a": 1.0}', result='{"b":  2.50}')
    ToolCallFactory(turn=turn, args=None, result=None, is_error=True, error='no "luck"')
    ToolCallFactory(turn=turn, result=None, is_error=None)
    draft = draft_from(FeedbackFactory(call=call))
    assert draft.stubs == (
        '[{"tool":"get_weather","arguments":{"a": 1.0},"result":{"b":  2.50},"isError":false},'
        '{"tool":"get_weather","arguments":null,"result":"no \\"luck\\"","isError":true}]'
    )


def test_a_time_that_is_not_the_sources_is_not_the_cases_present() -> None:
    call = ToolCallFactory(time_recorded=False)
    assert draft_from(FeedbackFactory(call=call)).now is None


def test_a_missing_call_is_a_case_without_arguments() -> None:
    turn = TurnFactory(system=None, messages=f"[{USER},{SAYS}]")
    draft = draft_from(
        FeedbackFactory(call=None, turn=turn, label="missing_tool", correction='{"tool": "get_weather"}')
    )
    assert (draft.tool_name, draft.args, draft.index, draft.messages) == ("", None, None, f"[{USER}]")
    check = judge_recorded(draft)
    assert (check.recorded.passed, check.warnings) == (False, ())


@pytest.mark.parametrize(
    ("label", "correction"),
    [
        ("bad_args", CORRECTION),
        ("bad_args", None),
        ("wrong_tool", '{"tool": "get_time", "offered": false, "arguments": {"zone": "x"}}'),
        ("wrong_tool", None),
        ("missing_tool", None),
        ("missing_tool", '{"tool": "get_weather", "arguments": {"city": "Bern"}}'),
        ("good_reply", None),
    ],
)
def test_each_label_makes_a_case_that_does_what_it_is_for(ada: User, label: str, correction: str | None) -> None:
    """The recorded call of a bad label fails its own case, the corrected one passes."""
    call = None if label == "missing_tool" else ToolCallFactory()
    feedback = FeedbackFactory(call=call, label=label, correction=correction)
    case = case_from_feedback(feedback, by=ada)
    for check in (judge_recorded(draft_from(feedback)), judge_recorded(case)):
        assert check.recorded.passed == (label == "good_reply")
        if not (correction and "get_time" in correction):
            assert check.warnings == ()


def test_a_tool_that_was_not_offered_may_be_expected_with_a_warning(ada: User) -> None:
    said = '{"tool": "get_time", "offered": false, "arguments": {"zone": "x"}}'
    case = case_from_feedback(FeedbackFactory(label="wrong_tool", correction=said), by=ada)
    check = judge_recorded(case)
    assert not check.recorded.passed
    assert any("no model could pass" in warning for warning in check.warnings)
    assert [(doubt.path, doubt.code) for doubt in cases.doubts(case.expectation, case.tools)] == [
        ("/calls/steps/0/tool", "unknown_tool")
    ]


def test_calls_beside_are_expected_too_with_any_arguments(ada: User) -> None:
    turn = TurnFactory()
    ToolCallFactory(turn=turn, args='{"city": "Bern"}')
    call = ToolCallFactory(turn=turn, args='{"city": "Zurich"}')
    case = case_from_feedback(FeedbackFactory(call=call, correction='{"arguments": {"city": "Zürich"}}'), by=ada)
    assert json.loads(case.expectation)["calls"]["steps"] == [
        {"tool": "get_weather", "args": {"city": {"equal": "Zürich"}}},
        {"tool": "get_weather", "extra_args": "allow"},
    ]
    check = judge_recorded(cases.get(case.number))
    assert (check.recorded.passed, check.warnings) == (False, ())
    assert check.corrected
    assert check.corrected.passed


# --- making ----------------------------------------------------------------------------------------------------------


def test_a_case_is_saved_with_its_first_version(ada: User) -> None:
    feedback = FeedbackFactory(correction=CORRECTION)
    case = case_from_feedback(feedback, by=ada, behavior="  Asks for Bern. ", tags=["smoke", "smoke", "weather"])
    assert (case.ref, case.version, case.status, case.created_by) == ("REG-1", 1, "active", ada)
    assert (case.behavior, case.tags) == ("Asks for Bern.", ["smoke", "weather"])
    assert (case.call_id, case.feedback_id, case.proposal) == (feedback.call_id, feedback.pk, None)
    (version,) = cases.versions(case)
    assert (version.number, version.data, version.by) == (1, record_of(Case.objects.get()), ada)
    assert AuditEvent.objects.get(action="case.created").object_id == "REG-1"
    case.validate_constraints()


def test_a_case_closes_its_proposal(ada: User) -> None:
    feedback = FeedbackFactory(correction=CORRECTION)
    proposal = proposals.track(proposals.GroupKey.of(ProposalFactory.build(created_by=None)), by=ada)
    case = case_from_feedback(feedback, by=ada, proposal=proposal, seen_version=1)
    found = proposals.detail(proposal.pk)
    assert (found.proposal.state, found.proposal.resolution_kind, found.proposal.resolution_ref) == (
        "applied", "regression_case", "REG-1",
    )  # fmt: skip
    assert found.cases == [case]
    assert json.loads(case.context)["proposalId"] == proposal.pk


def test_with_a_decided_proposal_no_case_is_made(ada: User) -> None:
    feedback = FeedbackFactory(correction=CORRECTION)
    proposal = ProposalFactory()
    proposals.dismiss(proposal.pk, reason="no", by=ada)
    with pytest.raises(AlreadyDecided):
        case_from_feedback(feedback, by=ada, proposal=proposal)
    assert not Case.objects.exists()
    assert case_from_feedback(feedback, by=ada).number == 1


def test_a_label_of_another_group_does_not_close_a_proposal(ada: User) -> None:
    with pytest.raises(ValidationError) as caught:
        case_from_feedback(FeedbackFactory(faults=["arg:/unit"]), by=ada, proposal=ProposalFactory())
    assert code_of(caught) == {"feedback": "not_of_proposal"}
    assert Proposal.objects.get().state == "pending"


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({"expectation": "{"}, "expectation"),
        ({"expectation": '{"version": 2}'}, "expectation"),
        ({"expectation": '{"version": 1, "calls": {"mode": "last"}}'}, "expectation"),
        ({"behavior": "x" * 10_001}, "behavior"),
        ({"behavior": "a\x00b"}, "behavior"),
        ({"tags": [" "]}, "tags"),
        ({"tags": map(str, range(MAX_TAGS + 1))}, "tags"),
        ({"tags": ["x" * 61]}, "tags"),
        ({"tags": ["a,b"]}, "tags"),
        ({"tags": ["a\nb"]}, "tags"),
    ],
)
def test_what_cannot_be_saved_is_told_by_name(ada: User, fields: dict[str, Any], refused: str) -> None:
    with pytest.raises(ValidationError) as caught:
        case_from_feedback(FeedbackFactory(correction=CORRECTION), by=ada, **fields)
    assert set(caught.value.error_dict) == {refused}
    assert not Case.objects.exists()


def test_the_label_other_needs_an_expectation_of_its_own(ada: User) -> None:
    feedback = FeedbackFactory(label="other", note="odd")
    with pytest.raises(ValidationError) as caught:
        case_from_feedback(feedback, by=ada, behavior="Answers.")
    assert code_of(caught) == {"expectation": "required"}
    silent = '{"version": 1, "calls": {"mode": "none"}}'
    assert case_from_feedback(feedback, by=ada, behavior="Answers.", expectation=silent).number == 1


def test_saving_warns_of_an_expectation_that_catches_nothing(ada: User) -> None:
    case = case_from_feedback(FeedbackFactory(correction=CORRECTION), by=ada, expectation='{"version":1}')
    assert any("passes" in warning for warning in judge_recorded(case).warnings)


# --- changing --------------------------------------------------------------------------------------------------------


def test_each_change_is_a_version_with_the_whole_record(ada: User) -> None:
    case = CaseFactory()
    cases.edit(case.number, by=ada, seen_version=1, behavior="Other.", note="clearer")
    cases.archive(case.number, by=ada, note="obsolete")
    restored = cases.restore(case.number, by=ada)
    assert (restored.version, restored.status, restored.behavior) == (4, "active", "Other.")
    found = [(version.number, version.note, json.loads(version.data)["status"]) for version in cases.versions(restored)]
    assert found == [(4, "", "active"), (3, "obsolete", "archived"), (2, "clearer", "active"), (1, "", "active")]
    assert cases.versions(restored)[0].data == record_of(restored)
    logged = AuditEvent.objects.filter(object_type="case").order_by("pk").values_list("action", flat=True)
    assert [*logged] == ["case.edited", "case.archived", "case.restored"]


def test_the_same_content_again_is_no_version(ada: User) -> None:
    case = CaseFactory()
    again = cases.edit(case.number, by=ada, seen_version=7, behavior=case.behavior, tags=[], stubs=case.stubs)
    assert again.version == 1


def test_a_stale_change_is_refused_with_what_is_there(ada: User) -> None:
    case = CaseFactory()
    cases.edit(case.number, by=ada, seen_version=1, behavior="First.")
    for step in (
        lambda: cases.edit(case.number, by=ada, seen_version=1, behavior="Second."),
        lambda: cases.archive(case.number, by=ada, seen_version=1),
    ):
        with pytest.raises(StaleCase) as caught:
            step()
        assert (caught.value.case.behavior, caught.value.case.version) == ("First.", 2)
    assert Case.objects.get().behavior == "First."


def test_archiving_twice_is_refused(ada: User) -> None:
    case = CaseFactory()
    with pytest.raises(NotArchived):
        cases.restore(case.number, by=ada)
    cases.archive(case.number, by=ada)
    with pytest.raises(AlreadyArchived):
        cases.archive(case.number, by=ada)


def test_a_case_that_is_not_there(ada: User) -> None:
    for step in (
        cases.get,
        lambda number: cases.edit(number, by=ada, seen_version=1, behavior="x"),
        lambda number: cases.archive(number, by=ada),
        lambda number: cases.restore(number, by=ada),
        lambda number: cases.merge(number, 1, by=ada),
    ):
        with pytest.raises(NoSuchCase):
            step(99)


@pytest.mark.parametrize(
    "stubs",
    ["{}", "[1]", '[{"tool": 1, "result": 2}]', '[{"tool": "x"}]', '[{"tool":"x","result":1,"y":2}]', "[", "NaN"],
)
def test_stubs_are_checked(ada: User, stubs: str) -> None:
    case = CaseFactory()
    with pytest.raises(ValidationError):
        cases.edit(case.number, by=ada, seen_version=1, stubs=stubs)


# --- duplicates ------------------------------------------------------------------------------------------------------


def test_duplicates_have_tool_canonical_arguments_and_messages_in_common(ada: User) -> None:
    said = {"system": None, "messages": f"[{USER},{ASKS}]"}

    def make(args: str, **fields: Any) -> Case:
        call = ToolCallFactory(turn=TurnFactory(**{**said, **fields}), args=args)
        return case_from_feedback(FeedbackFactory(call=call, correction=CORRECTION), by=ada)

    first = make('{"city":"Zürich","days":5}')
    same = make('{"days": 5.0, "city": "Z\\u00fcrich"}', messages=f"[{USER}]")
    make('{"city":"Bern","days":5}')
    make('{"city":"Zürich","days":5}', messages=f"[{SAYS},{ASKS}]".replace("assistant", "user", 1))
    make('{"city":"Zürich","days":5}', system='"Be nice."')
    assert cases.duplicates(first) == [same]
    assert cases.same_as(draft_from(FeedbackFactory(call=first.call, label="wrong_tool"))) == [first, same]


def test_merging_archives_the_other_and_keeps_where_it_came_from(ada: User) -> None:
    kept, other = CaseFactory(same_sha256=b"s" * 32, tags=["a"]), CaseFactory(same_sha256=b"s" * 32, tags=["b"])
    merged = cases.merge(kept.number, other.number, by=ada)
    assert (merged.tags, merged.version, merged.status) == (["a", "b"], 2, "active")
    gone = cases.get(other.number)
    assert (gone.status, gone.merged_into, gone.version) == ("archived", kept, 2)
    assert json.loads(gone.context) == {**json.loads(other.context), "mergedInto": kept.ref}
    assert cases.duplicates(merged) == []
    with pytest.raises(AlreadyArchived):
        cases.merge(kept.number, other.number, by=ada)
    back = cases.restore(other.number, by=ada)
    assert (back.merged_into, back.context) == (None, other.context)


def test_only_duplicates_are_merged(ada: User) -> None:
    kept, other = CaseFactory(), CaseFactory()
    for pair, code in (((kept, other), "not_a_duplicate"), ((kept, kept), "same")):
        with pytest.raises(ValidationError) as caught:
            cases.merge(pair[0].number, pair[1].number, by=ada)
        assert code_of(caught) == {"other": code}


# --- finding ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("ref", "number"), [("REG-12", 12), ("12", 12), ("reg-1", 1), (" REG-7 ", 7)])
def test_a_case_is_called_by_its_number(ref: str, number: int) -> None:
    assert cases.parse_ref(ref) == number


@pytest.mark.parametrize("ref", ["", "REG-", "REG-0", "-1", "REG-1x", "²", "9" * 30, "REG-2147483648"])
def test_what_is_no_number_is_no_case(ref: str) -> None:
    with pytest.raises(NoSuchCase):
        cases.parse_ref(ref)


def test_lists_are_filtered_paged_and_without_payload(django_assert_num_queries: Any) -> None:
    for number in range(5):
        CaseFactory(label="wrong_tool" if number % 2 else "bad_args", tags=[f"t{number}"], tool_name=f"tool_{number}")
    with django_assert_num_queries(1):
        page = cases.find(CaseFilter(), page_size=2)
    assert [case.ref for case in page.rows] == ["REG-5", "REG-4"]
    assert "messages" in page.rows[0].get_deferred_fields()
    following = cases.find(CaseFilter(), page_size=2, cursor=page.next)
    assert [case.ref for case in following.rows] == ["REG-3", "REG-2"]
    for wanted, number in (
        (CaseFilter(labels=("wrong_tool",)), 2),
        (CaseFilter(tag="t3"), 1),
        (CaseFilter(tool="tool_1"), 1),
        (CaseFilter(statuses=("archived",)), 0),
        (CaseFilter(query="TOOL_4"), 1),
        (CaseFilter(query="zürich"), 5),
        (CaseFilter(query="%"), 0),
    ):
        assert len(cases.find(wanted).rows) == number, wanted
    with pytest.raises(BadCursor):
        cases.find(CaseFilter(), cursor="WyJ4Il0")


def test_a_case_outlives_its_call(ada: User) -> None:
    case = case_from_feedback(FeedbackFactory(correction=CORRECTION), by=ada)
    before = record_of(cases.get(case.number))
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM agent_turns WHERE id = %s", [case.call.turn_id])
    after = cases.get(case.number)
    assert after.call is None
    assert record_of(after) == before
    assert CaseVersion.objects.count() == 1
    assert judge_recorded(after).recorded.passed is False


def test_a_case_that_no_export_could_carry_is_refused(ada: User) -> None:
    call = ToolCallFactory(result=json.dumps("x" * 3_000_000))  # once as observed, once as a stub
    with pytest.raises(ValidationError) as caught:
        case_from_feedback(FeedbackFactory(call=call, correction=CORRECTION), by=ada)
    assert code_of(caught) == {"__all__": "too_large"}
    assert not Case.objects.exists()


def test_unused_toolsets_are_no_trouble(ada: User) -> None:
    turn = TurnFactory(toolset=ToolsetFactory(tools="[]", num_tools=0))
    case = case_from_feedback(FeedbackFactory(call=ToolCallFactory(turn=turn), correction=CORRECTION), by=ada)
    assert case.tools == "[]"
