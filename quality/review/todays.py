"""The tools that a turn would be offered today, to see what became of those that were offered then.

Needs an open tenant scope.
"""

import json
from collections.abc import Mapping
from types import MappingProxyType

from quality.replay.sides import todays_tools
from quality.review.offered import OfferedTool, offered_tools
from tenants import deployment
from tenants.scope import current_tenant_id
from tenants.versions import current_version

# What a process read it keeps under the version of the tenant's settings, as turns do: one query an item.
_kept: dict[int, tuple[tuple[int, str], Mapping[str, OfferedTool]]] = {}
MAX_TENANTS = 200


def todays() -> Mapping[str, OfferedTool]:
    """Today's tools by name."""
    tenant, version = current_tenant_id(), (current_version(), deployment.current())
    if tenant in _kept and _kept[tenant][0] == version:
        return _kept[tenant][1]
    tools = offered_tools(json.dumps(todays_tools(None), ensure_ascii=False))
    found = MappingProxyType({tool.name: tool for tool in tools})
    while len(_kept) >= MAX_TENANTS:
        _kept.pop(next(iter(_kept)), None)
    _kept[tenant] = (version, found)
    return found
