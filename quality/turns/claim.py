"""What a worker holds of a turn."""

import uuid
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Claim:
    """A turn that is ours until the lease ends or another claim follows. `token` fences every write."""

    tenant_id: int
    turn_id: int
    token: uuid.UUID
    attempt: int
