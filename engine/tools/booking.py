"""`offer_booking_link`: gives the model the one link under which the user can book an appointment."""

import json

from engine import net
from engine.errors import ToolError
from engine.tools.base import Arguments, FunctionTool, Safety, ToolContext, ToolOutcome, succeeded

MAX_URL = 2_000  # characters


def booking_url_fault(url: str) -> str | None:
    """Why `url` is no link to hand out, or None. Any https page will do (Calendly, Cal.com, TidyCal, one's own).

    The link is opened by the user's browser, not from here; still it must be one that the public can reach.
    """
    if len(url) > MAX_URL:
        return f"is longer than {MAX_URL} characters"
    try:
        parsed = net.parse_url(url.partition("#")[0])
        net.Policy.tenant(https_only=True).check_url(parsed)
    except net.Refused as exc:
        return exc.message
    return None


def booking_tool(url: str) -> FunctionTool:
    """Raises `ToolError` for a link that is not https, not public, or holds credentials."""
    if reason := booking_url_fault(url):
        raise ToolError(f"the booking link cannot be offered: {reason}")

    async def offer(_arguments: Arguments, context: ToolContext) -> ToolOutcome:
        return succeeded(json.dumps({"url": url}, ensure_ascii=False), context)

    return FunctionTool(
        name="offer_booking_link",
        description=(
            "Get the link under which the user can book an appointment. Call it when the user wants to book, move or "
            "plan a meeting, and put the link into your answer exactly as it is."
        ),
        parameters={"type": "object", "properties": {}, "additionalProperties": False},
        execute=offer,
        safety=Safety.SAFE,
    )
