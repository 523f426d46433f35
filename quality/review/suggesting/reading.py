"""An item as a model reads it: what was known when the call was made, and what came of it.

Needs an open tenant scope.
"""

from collections.abc import Iterator
from typing import Any

from quality.improve import guidelines
from quality.models import ReviewQueue
from quality.review.conversation import Conversation
from quality.review.evidence import CallEvidence, ItemEvidence, evidence_of
from quality.review.items import Item
from quality.review.suggesting.asking import Question


def guidelines_for(queue: ReviewQueue | None) -> tuple[str, int | None]:
    """What people go by here, as Markdown, and the version of the tenant's own (None: there are none)."""
    newest = guidelines.newest()
    texts = [newest.text if newest else "", queue.guidelines if queue else ""]
    return "\n\n".join(text for text in texts if text), newest.number if newest else None


def question_of(item: Item, text: str) -> Question:
    """The question about an item, with the guidelines `text`."""
    found = evidence_of(item)
    return Question(
        guidelines=text,
        tools=[
            {"name": tool.name, "description": tool.description, "parameters": tool.parameters} for tool in found.tools
        ],
        messages=list(_messages(found)),
        call=_call(found.call) if found.call else None,
    )


def _messages(found: ItemEvidence) -> Iterator[dict[str, Any]]:
    if found.system:
        yield {"role": "system", "text": found.system}
    yield from _said(found.history, None)
    yield from _said(found.conversation, found.item.cycle)


def _said(conversation: Conversation, until: int | None) -> Iterator[dict[str, Any]]:
    """The messages up to the reply of the cycle that is judged: what came later was not known then."""
    for said in conversation.messages:
        if until is not None and said.cycle is not None and said.cycle > until:
            return
        calls = [{"name": call.name, "arguments": call.args} for call in said.calls]
        yield {"role": said.role, "text": said.text} | ({"calls": calls} if calls else {})
        if until is not None and said.cycle == until:
            return


def _call(found: CallEvidence) -> dict[str, Any]:
    told: dict[str, Any] = {
        "tool": found.call.tool_name,
        "arguments": found.args.text if found.args else None,
        "result": found.result.body.text if found.result.body else None,
        "isError": found.call.is_error,
        "error": found.error.text if found.error else None,
    }
    return {name: value for name, value in told.items() if value is not None}
