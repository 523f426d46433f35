"""The ASGI application: pages, API and (later) live streams in one process."""

import os
from typing import cast

from django.core.asgi import get_asgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "quality.settings")
django_application = get_asgi_application()

from quality.bodies import App, BodyLimit  # noqa: E402  (needs Django set up)
from tenants.start import refuse_unsafe_start  # noqa: E402  (needs Django set up)

refuse_unsafe_start()
application = BodyLimit(cast(App, django_application))
