"""Script tools: a folder of the operator's (`SCRIPT_TOOLS_DIR`), which tenants switch on."""

import asyncio
from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.db import transaction

from engine.tools.script import ScriptFault, ScriptTool, load_scripts
from tenants import audit
from tenants.models import ApiToken, TenantSettings, User
from tenants.versions import raise_version

type Loaded = tuple[tuple[ScriptTool, ...], tuple[ScriptFault, ...]]


def loaded() -> Loaded:
    """The folder's tools and what is wrong with its files. Its files are asked again when one of them changes.

    To be called in a thread without an event loop: each file runs in a process of its own.
    """
    folder = settings.SCRIPT_TOOLS_DIR
    if not folder or not Path(folder).is_dir():
        return (), ()
    return _load(folder, _stamp(Path(folder)))


@transaction.atomic
def switch(*, is_enabled: bool, actor: User, token: ApiToken | None = None) -> None:
    """Switch the operator's script tools on or off for the open scope's tenant."""
    raise_version()
    TenantSettings.objects.update(scripts_enabled=is_enabled)
    audit.record(
        "scripts.switched", object_type="settings", object_id="", actor=actor, token=token,
        detail={"enabled": is_enabled},
    )  # fmt: skip


def _stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    files = ((file.name, file.stat()) for file in sorted(folder.glob("*.py")))
    return tuple((name, status.st_mtime_ns, status.st_size) for name, status in files)


@lru_cache(maxsize=2)
def _load(folder: str, _stamp: tuple[tuple[str, int, int], ...]) -> Loaded:
    tools, faults = asyncio.run(load_scripts(Path(folder)))
    return tuple(tools), tuple(faults)
