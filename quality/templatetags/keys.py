"""Keys of Review in templates, as the person who looks has set them."""

from typing import Any

from django import template
from django.template import Context
from django.utils.html import format_html
from django.utils.safestring import SafeString

from quality.review.keys import KeyMap, goes_on, key_map

register = template.Library()


def _keys(context: Context) -> KeyMap:
    """The map of the request's user, read once a request; without a request, the table's."""
    request: Any = getattr(context, "request", None)
    if request is None:
        return KeyMap()
    if not hasattr(request, "review_keys"):
        request.review_keys = key_map(request.user)
    keys: KeyMap = request.review_keys
    return keys


@register.simple_tag(takes_context=True)
def key(context: Context, name: str, second: str = "") -> str:
    """The key of an action as `data-key` takes it; with a `second` action, one after the other: `c 4`."""
    keys = _keys(context)
    return f"{keys[name]} {keys[second]}" if second else keys[name]


@register.simple_tag(takes_context=True)
def kbd(context: Context, name: str, second: str = "") -> SafeString:
    """The same as it is printed."""
    return format_html("<kbd>{}</kbd>", key(context, name, second))


@register.simple_tag(takes_context=True)
def key_sheet(context: Context) -> list[Any]:
    """All keys by group, for the sheet."""
    return list(_keys(context).sheet())


@register.simple_tag(takes_context=True)
def goes_on_after_label(context: Context) -> bool:
    """Does the next item come after a label, for the one who looks?"""
    request: Any = getattr(context, "request", None)
    return goes_on(request.user) if request is not None else True
