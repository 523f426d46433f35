"""The stored attempts of a replay as lines of JSON, which can be judged again without asking anybody."""

from quality.models import ReplaySample
from quality.streaming import Chunks
from tenants.scope import tenant_scope

ROWS_AT_ONCE = 50
MEDIA_TYPE = "application/x-ndjson; charset=utf-8"


def lines(replay_id: int, *, tenant_id: int) -> Chunks:
    """A line each, in constant memory. Opens a scope of its own."""
    with tenant_scope(tenant_id):
        rows = ReplaySample.objects.filter(replay=replay_id).order_by("replay_case_id", "side", "index")
        for data in rows.values_list("data", flat=True).iterator(chunk_size=ROWS_AT_ONCE):
            yield f"{data}\n".encode()
