"""Labels and corrections on pages: where to correct, and what was said."""

from typing import Any

from django import template
from django.http import QueryDict
from django.template import Context
from django.urls import reverse

from quality.review.corrections import Said, said

register = template.Library()


@register.simple_tag(takes_context=True)
def correct_url(context: Context, label: str = "", item: Any = None) -> str:
    """Where the form of a correction comes from, for the item on the screen; without a label, its buttons again. For
    another `item`, the page of Review with the form on it."""
    shown = item or context["found"].item
    source = context.get("source")
    way = source.fields if source is not None else {}
    query = QueryDict(mutable=True)
    if shown.call_id:
        query["call"] = str(shown.call_id)
    else:
        query["turn"], query["cycle"] = str(shown.turn_id), str(shown.cycle)
    if item:
        query["correct"] = label
        if source is None:
            return f"{reverse('review', args=[context['tenant'].slug])}?{query.urlencode()}"
        return str(source.address(**query.dict()))
    for name, value in (*way.items(), ("label", label), ("stay", "1" if context.get("stay") else "")):
        if value:
            query[name] = value
    return f"{reverse('review-correct', args=[context['tenant'].slug])}?{query.urlencode()}"


@register.simple_tag
def correction_of(step: Any, args: str | None) -> Said | None:
    """What the correction of a label, or of a step of the history, says against the arguments of the call."""
    return said(step.label, step.correction, args) if step.label else None
