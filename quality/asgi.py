"""The ASGI application: pages, API and (later) live streams in one process."""

import os

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "quality.settings")
application = get_asgi_application()

from tenants.start import refuse_unsafe_start  # noqa: E402  (needs Django set up)

refuse_unsafe_start()
