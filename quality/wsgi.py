"""The WSGI application: pages and API in production."""

import os

from django.core.wsgi import get_wsgi_application

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "quality.settings")
application = get_wsgi_application()

from tenants.start import refuse_unsafe_start  # noqa: E402  (needs Django set up)

refuse_unsafe_start()
