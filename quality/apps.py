from django.apps import AppConfig


class QualityConfig(AppConfig):
    name = "quality"

    def ready(self) -> None:
        # The package's own __init__ stays empty, so that the regression runner loads no Celery.
        from quality import celery  # noqa: F401
        from quality.webhooks import outbox
        from tenants import audit

        audit.recorded.connect(outbox.on_audited, dispatch_uid="webhooks")
