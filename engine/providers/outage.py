"""When a model server is taken for one that is down."""

from engine.providers.protocol import ModelError, Request


def is_outage(error: ModelError, request: Request) -> bool:
    """Did the server fail as one that is down does? A slow answer that had begun is not that, nor a refusal."""
    has_answered = bool(request.exchanges) and request.exchanges[-1].status is not None
    match error.code:
        case "connect_failed" | "cut":
            return True
        case "timed_out":
            return not has_answered
        case "http_error":
            return (error.status or 0) >= 500
    return False
