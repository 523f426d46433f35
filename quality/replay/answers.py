"""The stored attempts of a replay as lines of JSON, which can be judged again without asking anybody.

They hold all that the models answered, so they go out as other exports do: to admins, and on record.
"""

from quality.models import Replay, ReplaySample
from quality.streaming import Chunks
from tenants import audit
from tenants.models import ApiToken, User
from tenants.scope import tenant_scope

ROWS_AT_ONCE = 50
MEDIA_TYPE = "application/x-ndjson; charset=utf-8"


def audited(replay: Replay, *, actor: User, token: ApiToken | None = None) -> None:
    """Write down, in the open scope, who takes them away."""
    audit.record(
        "export.replay_answers",
        object_type="replay",
        object_id=replay.pk,
        actor=actor,
        token=token,
        detail={"name": replay.name, "samples": replay.num_finished},
    )


def lines(replay_id: int, *, tenant_id: int) -> Chunks:
    """A line each, in constant memory. Opens a scope of its own."""
    with tenant_scope(tenant_id):
        rows = ReplaySample.objects.filter(replay=replay_id).order_by("replay_case_id", "side", "index")
        for data in rows.values_list("data", flat=True).iterator(chunk_size=ROWS_AT_ONCE):
            yield f"{data}\n".encode()
