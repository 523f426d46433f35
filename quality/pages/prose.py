"""Markdown as HTML. The parser gives tokens; each is written here, by name, through `format_html`: what is not named
is shown as the text that it is, HTML and images among it. So nothing that was written can be more than prose.
"""

from functools import lru_cache

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

_PARSER = MarkdownIt("commonmark", {"html": False}).enable("table").disable("image")
_PLAIN = {
    "paragraph": "p",
    "bullet_list": "ul",
    "list_item": "li",
    "blockquote": "blockquote",
    "strong": "strong",
    "em": "em",
    "thead": "thead",
    "tbody": "tbody",
    "tr": "tr",
    "th": "th",
    "td": "td",
}
_SHIFT = 1  # the page has its own first heading
MAX_DEPTH = 40


@lru_cache(maxsize=64)
def prose(text: str) -> SafeString:
    """A Markdown text as HTML that is inert: text, headings, lists, tables, code and links that leave."""
    return _all(SyntaxTreeNode(_PARSER.parse(text)), 0)


def _all(node: SyntaxTreeNode, depth: int) -> SafeString:
    if depth > MAX_DEPTH:
        return format_html("{}", "…")
    return format_html_join("", "{}", ((_one(child, depth + 1),) for child in node.children))


def _one(node: SyntaxTreeNode, depth: int) -> SafeString:  # noqa: PLR0911  (a line a kind)
    match node.type:
        case "text":
            return format_html("{}", node.content)
        case "softbreak":
            return format_html("{}", "\n")
        case "hardbreak" | "hr":
            return format_html("<{}>", node.tag)
        case "code_inline":
            return format_html("<code>{}</code>", node.content)
        case "fence" | "code_block":
            return format_html("<pre>{}</pre>", node.content)
        case "inline":
            return _all(node, depth)
        case "heading":
            level = min(6, int(node.tag[1:]) + _SHIFT)
            return _wrapped(f"h{level}", _all(node, depth))
        case "ordered_list":
            return format_html('<ol start="{}">{}</ol>', node.attrs.get("start", 1), _all(node, depth))
        case "table":
            return format_html('<div class="scroll"><table>{}</table></div>', _all(node, depth))
        case "link":
            return format_html(
                '<a href="{}" rel="noopener noreferrer nofollow" target="_blank">{}</a>',
                node.attrs.get("href", ""),
                _all(node, depth),
            )
    if node.type == "paragraph" and node.hidden:  # in a list without blank lines
        return _all(node, depth)
    if node.type in _PLAIN:
        return _wrapped(_PLAIN[node.type], _all(node, depth))
    return format_html("{}", node.content) if not node.children else _all(node, depth)


def _wrapped(tag: str, inner: SafeString) -> SafeString:
    return format_html("<{}>{}</{}>", tag, inner, tag)
