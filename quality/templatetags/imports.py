"""Imports on pages: what a format is called, and times as a file tells them."""

import datetime as dt

from django import template

from quality.ingest.formats import FORMATS

register = template.Library()


@register.filter
def format_label(name: str) -> str:
    """`openai_chat` → OpenAI Chat Completions; of a file whose format is not known yet, that."""
    return FORMATS[name].LABEL if name in FORMATS else "not known"


@register.filter
def instant(text: str | None) -> dt.datetime | None:
    """The UTC text of a record as a time."""
    return dt.datetime.fromisoformat(text) if text else None
