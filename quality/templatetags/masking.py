"""What readers are told of masking."""

from typing import Any

from django import template
from django.template import Context

from tenants.masking import reading

register = template.Library()


@register.inclusion_tag("components/masked_note.html", takes_context=True)
def masked_note(context: Context) -> dict[str, Any]:
    """A line where something that was read for this page is masked for whoever looks at it."""
    by = reading.current()
    hides = by is not None and any(hidden != mark for mark, hidden in by.memory.items())
    return {"hides": hides, "tenant": context.get("tenant")}
