"""Row security, composite keys and grants of webhooks and their messages."""

from django.db import migrations

from tenants.rls import composite_key, let_read, protect


class Migration(migrations.Migration):
    dependencies = [("quality", "0018_webhooks")]

    operations = [
        protect("webhooks"),
        protect("webhook_deliveries"),
        composite_key("webhooks", "secret_id", "secrets", on_delete="SET NULL"),
        composite_key("webhook_deliveries", "webhook_id", "webhooks"),
        # The sweep finds what is due and what is old, in every tenant.
        let_read("janitor", "webhook_deliveries", "id, tenant_id, state, next_at, created_at"),
    ]
