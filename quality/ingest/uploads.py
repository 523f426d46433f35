"""Files that uploads left behind: those of requests that were cut off, of processes that ended between file and row."""

import time
from collections.abc import Iterable
from pathlib import Path

from django.conf import settings
from django.db import models

from quality.models import Import, ImportState
from tenants.scope import tenant_scope

STRAY_AFTER_S = 24 * 3600.0  # a file that no row knows is deleted when it is this old
_WITH_FILE = (ImportState.PREVIEW, ImportState.QUEUED, ImportState.RUNNING)


def sweep() -> int:
    """Delete files that are a day old and that no import of any tenant knows; how many they were."""
    old = [path for path in Path(settings.MEDIA_ROOT).iterdir() if _age_s(path) > STRAY_AFTER_S]
    strays = {path.name for path in old} - _known(path.name for path in old) if old else set[str]()
    for path in old:
        if path.name in strays:
            path.unlink(missing_ok=True)
    return len(strays)


def _age_s(path: Path) -> float:
    """Seconds since it was last written to; 0 for what is no file, or gone by now."""
    try:
        return time.time() - path.stat().st_mtime if path.is_file() else 0.0
    except FileNotFoundError:
        return 0.0


def _known(names: Iterable[str]) -> set[str]:
    """Those of the names that belong to an import. The `janitor` sees which tenants have some, and no names."""
    live: models.QuerySet[Import] = models.QuerySet(Import).using("janitor").filter(state__in=_WITH_FILE)
    wanted, found = list(names), set[str]()
    for tenant_id in set(live.values_list("tenant_id", flat=True)):
        with tenant_scope(tenant_id):
            found.update(Import.objects.filter(stored_as__in=wanted).values_list("stored_as", flat=True))
    return found
