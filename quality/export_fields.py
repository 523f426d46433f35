"""What is in a record of each kind, in words: for the page and the documents. Names of members in their order."""

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy

_CONTEXT = gettext_lazy("where it happened: source, ids of conversation, messages and contact, model, style")
_CALL = {
    "toolCallId": gettext_lazy("the id that the model gave the call; not unique"),
    "toolName": gettext_lazy("the tool that was called"),
    "args": gettext_lazy("the arguments, spelled as the model wrote them"),
    "result": gettext_lazy("what came back, whole"),
    "isError": gettext_lazy("did it fail? null: no outcome was recorded"),
    "error": gettext_lazy("what went wrong, as it was told"),
    "state": gettext_lazy("result, error, unknown, or a state under way"),
    "cycle": gettext_lazy("which reply of the turn asked for it, from 0"),
    "index": gettext_lazy("which call of that reply, from 0"),
    "startedAt": gettext_lazy("when, in UTC"),
    "timeRecorded": gettext_lazy("false: the source gave no time"),
    "durationMs": gettext_lazy("how long, in milliseconds"),
}
_TIMES = {"createdAt": gettext_lazy("first said or made"), "updatedAt": gettext_lazy("last changed")}

FIELDS: dict[str, dict[str, str | Promise]] = {
    "calls": {
        "recordType": "tool_call",
        "schemaVersion": gettext_lazy("version of this form"),
        "id": gettext_lazy("the number of the call here"),
        "turnId": gettext_lazy("the turn it belongs to"),
        **_CALL,
        "label": gettext_lazy("its newest label, or null"),
        "context": _CONTEXT,
    },
    "feedback": {
        "recordType": "tool_call_feedback",
        "schemaVersion": gettext_lazy("version of this form"),
        "id": gettext_lazy("the number of the label"),
        "label": gettext_lazy("good_reply, wrong_tool, missing_tool, bad_args or other"),
        "note": gettext_lazy("what the reviewer wrote"),
        "correction": gettext_lazy("what should have been called: tool, arguments, position; or null"),
        "faults": gettext_lazy("what is wrong, for grouping: arg:/path, tool:name, missing:name"),
        "guidelineVersion": gettext_lazy("the guidelines that held then, or null"),
        "reviewer": gettext_lazy("id, name and address of who said it"),
        "call": gettext_lazy("the call with arguments and result; null for a turn that made none"),
        "context": gettext_lazy(
            "where it happened: source, ids of conversation, messages and contact, model, style; the turn's messages "
            "and the SHA-256 of the tools offered"
        ),
        "version": gettext_lazy("the item's version that this label made"),
        **_TIMES,
    },
    "cases": {
        "recordType": "tool_call_regression_case",
        "schemaVersion": gettext_lazy("version of this form"),
        "id": gettext_lazy("REG- and the number of the case"),
        "version": gettext_lazy("counts its changes"),
        "status": gettext_lazy("active or archived"),
        "toolName": gettext_lazy("the tool that was called; empty where none was"),
        "label": gettext_lazy("what the reviewer said of the call"),
        "tags": gettext_lazy("words to choose cases by"),
        "input": gettext_lazy("args, messages, tools and now: what the model was given, and what it asked for"),
        "observed": gettext_lazy("result, isError, error, cycle, index: what came of it"),
        "expected": gettext_lazy("behavior in words, and the expectation that a replay is judged by"),
        "context": gettext_lazy("where it comes from: conversation, style, model, proposal, reviewer"),
        "stubs": gettext_lazy("results to serve in a replay"),
        **_TIMES,
    },
    "proposals": {
        "recordType": "tool_call_improvement_proposal",
        "schemaVersion": gettext_lazy("version of this form"),
        "id": gettext_lazy("the number of the proposal"),
        "version": gettext_lazy("counts its decisions"),
        "state": gettext_lazy("pending, dismissed or applied"),
        "label": gettext_lazy("what the group has in common: the label"),
        "toolName": gettext_lazy("the tool"),
        "styleId": gettext_lazy("the style"),
        "fault": gettext_lazy("the kind of fault"),
        "suggestedKind": gettext_lazy("the kind of fix that was suggested"),
        "title": gettext_lazy("the same in words"),
        "reason": gettext_lazy("why it was dismissed"),
        "resolution": gettext_lazy("kind, ref and note of the fix, or null"),
        "decidedBy": gettext_lazy("who decided, or null"),
        "decidedAt": gettext_lazy("when, or null"),
        "createdBy": gettext_lazy("who tracked it"),
        **_TIMES,
    },
}
