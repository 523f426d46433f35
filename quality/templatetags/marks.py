"""Tags of an item, and whether it is in the archive, for pages of one item."""

from typing import Any

from django import template

from quality import calls
from quality.review import archive, tags
from quality.review.items import Item

register = template.Library()


@register.simple_tag
def marks_of(item: Item) -> dict[str, Any]:
    """`tags` of the item and whether it `is_archived`; two queries."""
    return {"tags": tags.tags_of(item), "is_archived": archive.is_archived(item)}


@register.simple_tag
def tag_names() -> list[str]:
    """All tags that any item has."""
    return calls.tag_names()
