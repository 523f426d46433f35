from django.apps import AppConfig
from django.db.backends.signals import connection_created


class TenantsConfig(AppConfig):
    name = "tenants"

    def ready(self) -> None:
        from tenants.roles import judge_new_connection

        connection_created.connect(judge_new_connection)
