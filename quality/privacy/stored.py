"""All that a tenant holds, masked by the rules that keep nothing raw: for evidence that was stored before there was
such a rule. Marks are not masked twice, so it can be stopped and begun again."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from django.apps import apps
from django.db import connection

from quality.improve.case_store import same_sha256
from quality.ingest import tables
from quality.models import ENDED, CallDecision, Case, Feedback, ModelReply, ToolCall, Turn, TurnEvent, TurnRun
from quality.privacy import rows
from quality.privacy.ended import masked_turn
from tenants import masks
from tenants.masking.masker import Masker
from tenants.masking.reading import Reading, as_stored
from tenants.models import Tenant, TenantModel
from tenants.scope import current_tenant_id, tenant_scope

BATCH_TURNS = 50
BATCH_ROWS = 500
OF_TURNS = (Turn, ToolCall, ModelReply, CallDecision, TurnRun, TurnEvent)

type Changed = list[tuple[TenantModel, list[str]]]


class NothingToMask(Exception):
    """The tenant keeps raw what every rule finds."""


def mask_stored(tenant: Tenant, *, dry_run: bool = False, after: int = 0) -> Iterator[tuple[str, int, Counter[str]]]:
    """Batch by batch, each a transaction of its own: the model's name, the id of the last row, and how many values of
    which columns (`table.column`) were masked, or would be. Turns come first, with what is said of them; `after` begins
    behind that turn. Raises NothingToMask."""
    with tenant_scope(tenant):
        masker = masks.at_write()
    if masker is None:
        raise NothingToMask
    yield from _turns(tenant, masker, dry_run=dry_run, after=after)
    for model in _others():
        yield from _rows(tenant, model, masker, dry_run=dry_run)


def _others() -> list[type[TenantModel]]:
    found = [model for model in apps.get_models() if issubclass(model, TenantModel) and rows.masked_fields(model)]
    return sorted(set(found) - set(OF_TURNS) - set(_said_of_turns()), key=lambda model: model._meta.db_table)


def _said_of_turns() -> list[type[TenantModel]]:
    """What is said of a turn or its calls, and quotes them: labels with their history, hints, suggestions."""
    return [
        model
        for model in apps.get_models()
        if issubclass(model, TenantModel)
        and model not in OF_TURNS
        and rows.masked_fields(model)
        and any(field.attname == "turn_id" for field in model._meta.concrete_fields)
    ]


def _turns(tenant: Tenant, masker: Masker, *, dry_run: bool, after: int) -> Iterator[tuple[str, int, Counter[str]]]:
    while True:
        with tenant_scope(tenant), as_stored():
            turns = Turn.objects.filter(pk__gt=after).order_by("pk")
            states = list(turns.values_list("pk", "state", "source")[:BATCH_TURNS])
            if not states:
                return
            tables.begin_batch(0)  # no ingest changes them meanwhile
            list(Feedback.objects.select_for_update().filter(turn__in=[pk for pk, *_ in states]).values_list("pk"))
            changed: Changed = []
            for pk, state, _ in states:
                if state in ENDED:  # others are masked when they end
                    reading = Reading(masker)
                    changed += masked_turn(pk, reading)
                    for model in _said_of_turns():
                        changed += [(row, rows.mask(row, reading)) for row in _all(model).filter(turn_id=pk)]
            if not dry_run:
                rows.save(changed)
                _hash_again([row for row, names in changed if names])
            after = states[-1][0]
            yield "Turn", after, _counted(changed)


def _rows(
    tenant: Tenant, model: type[TenantModel], masker: Masker, *, dry_run: bool
) -> Iterator[tuple[str, int, Counter[str]]]:
    after = 0
    while True:
        with tenant_scope(tenant), as_stored():
            found = model._default_manager.filter(pk__gt=after).order_by("pk")
            if model._meta.db_table not in rows.HISTORY:
                found = found.select_for_update(of=("self",))
            batch = list(found[:BATCH_ROWS])
            if not batch:
                return
            changed = [(row, rows.mask(row, Reading(masker))) for row in batch]
            for row, names in changed:
                if isinstance(row, Case) and names:
                    row.same_sha256 = same_sha256(row)
                    names.append("same_sha256")
            if not dry_run:
                rows.save(changed)
            after = batch[-1].pk
            yield model.__name__, after, _counted(changed)


def _counted(changed: Changed) -> Counter[str]:
    return Counter(
        f"{row._meta.db_table}.{name}" for row, names in changed for name in names if not name.endswith("_sha256")
    )


def _hash_again(changed: Sequence[TenantModel]) -> None:
    """The hashes of what came in are those of what is stored: by an old one what was masked could be guessed."""
    came_in = [row for row in changed if isinstance(row, Turn | ToolCall) and row.source != "engine"]  # ours are others
    loads: dict[type[TenantModel], Any] = {Turn: tables.load_turns, ToolCall: tables.load_calls}
    for model, load in loads.items():
        mine = {(row.source, row.external_id): row.pk for row in came_in if isinstance(row, model)}
        digests = [(mine[key], record.digest()) for key, record in load(mine.keys()).items()]
        with connection.cursor() as cursor:
            cursor.execute(
                f"UPDATE {model._meta.db_table} o SET content_sha256 = n.digest "  # noqa: S608  (a table of ours)
                "FROM unnest(%s::bigint[], %s::bytea[]) AS n(id, digest) WHERE o.tenant_id = %s AND o.id = n.id",
                [[pk for pk, _ in digests], [digest for _, digest in digests], current_tenant_id()],
            )


def _all(model: type[TenantModel]) -> Any:
    """The rows of a model that is told by its columns alone."""
    return model._default_manager
