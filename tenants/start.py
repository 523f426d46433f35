"""What a process must not start with, beside an unsafe database role (tenants/roles.py)."""

import logging

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError, ProgrammingError, connections

from tenants.active import file_definitions
from tenants.roles import refuse_unsafe_runtime_role
from tenants.secrets import stored_kids

logger = logging.getLogger(__name__)


def refuse_unsafe_start() -> None:
    """Called once by each web process and worker. Raises ImproperlyConfigured, naming the variable."""
    refuse_unsafe_runtime_role()
    refuse_missing_keys()
    file_definitions()  # a bad LLM_TOOLS_FILE


def refuse_missing_keys() -> None:
    """Secrets under a key that is not among APP_KEKS would fail one by one, each in somebody's turn."""
    try:
        kids = {kid for _, kid, _ in stored_kids()}
    except (OperationalError, ProgrammingError) as error:  # down, or not migrated yet: neither has secrets to lose
        logger.warning("The keys of secrets were not checked: %s", error)
        return
    finally:
        connections["default"].close()
    missing = sorted(kids - set(settings.APP_KEKS.keys))
    if missing:
        raise ImproperlyConfigured(
            f"APP_KEKS: secrets are stored under {', '.join(missing)}, which is not among the keys given. "
            "Add it; `manage.py rotate_secrets` then moves its secrets to the first key."
        )
