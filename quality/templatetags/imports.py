"""Imports on pages: what a format is called, and times as a file tells them."""

import datetime as dt

from django import template

from quality.ingest.formats import FORMATS

register = template.Library()


@register.filter
def format_label(name: str) -> str:
    """`openai_chat` → OpenAI Chat Completions; a dash where that is not known, or where there are several."""
    return FORMATS[name].LABEL if name in FORMATS else "–"


@register.filter
def instant(text: str | None) -> dt.datetime | None:
    """The UTC text of a record as a time."""
    return dt.datetime.fromisoformat(text) if text else None
