"""The exchange desk."""

import django.core.validators
import django.db.models.deletion
import engine.tools.exchange
import tenants.scope
from decimal import Decimal
from django.db import migrations, models

from tenants.rls import protect


class Migration(migrations.Migration):
    dependencies = [
        ("tenants", "0007_styles"),
    ]

    operations = [
        migrations.CreateModel(
            name="ExchangeCustomer",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("contact_id", models.TextField()),
                (
                    "verification",
                    models.TextField(
                        choices=[
                            ("none", "none"),
                            ("pending", "pending"),
                            ("verified", "verified"),
                            ("rejected", "rejected"),
                        ]
                    ),
                ),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        default=tenants.scope.current_tenant_id,
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "exchange_customers",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="exchange_customers_tenant_id_key"),
                    models.UniqueConstraint(fields=("tenant", "contact_id"), name="exchange_customers_contact_key"),
                    models.CheckConstraint(
                        condition=models.Q(("verification__in", ["none", "pending", "verified", "rejected"])),
                        name="exchange_customers_verification_check",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ExchangeDesk",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("info", models.JSONField(default=dict)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        default=tenants.scope.current_tenant_id,
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "exchange_desks",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="exchange_desks_tenant_id_key"),
                    models.UniqueConstraint(fields=("tenant",), name="exchange_desks_one_key"),
                ],
            },
        ),
        migrations.CreateModel(
            name="ExchangeOrder",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                ("contact_id", models.TextField()),
                ("give", models.CharField(max_length=12)),
                ("get", models.CharField(max_length=12)),
                ("give_amount", models.DecimalField(decimal_places=8, max_digits=24)),
                ("get_amount", models.DecimalField(decimal_places=8, max_digits=24)),
                ("needs_verification", models.BooleanField()),
                (
                    "state",
                    models.TextField(
                        choices=[
                            ("created", "created"),
                            ("paid", "paid"),
                            ("paid_out", "paid_out"),
                            ("cancelled", "cancelled"),
                        ],
                        default=engine.tools.exchange.OrderState["CREATED"],
                    ),
                ),
                ("create_key", models.TextField()),
                ("payout_key", models.TextField(null=True)),
                ("destination", models.TextField(blank=True)),
                ("created_at", models.DateTimeField(auto_now_add=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        default=tenants.scope.current_tenant_id,
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "exchange_orders",
                "indexes": [models.Index(fields=["tenant", "-id"], name="exchange_orders_newest_idx")],
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="exchange_orders_tenant_id_key"),
                    models.UniqueConstraint(fields=("tenant", "create_key"), name="exchange_orders_create_key"),
                    models.UniqueConstraint(fields=("tenant", "payout_key"), name="exchange_orders_payout_key"),
                    models.CheckConstraint(
                        condition=models.Q(("state__in", ["created", "paid", "paid_out", "cancelled"])),
                        name="exchange_orders_state_check",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ExchangeRate",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "give",
                    models.CharField(
                        max_length=12,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z0-9]{2,12}\\Z", "A currency is 2 to 12 capital letters and digits."
                            )
                        ],
                    ),
                ),
                (
                    "get",
                    models.CharField(
                        max_length=12,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z0-9]{2,12}\\Z", "A currency is 2 to 12 capital letters and digits."
                            )
                        ],
                    ),
                ),
                (
                    "rate",
                    models.DecimalField(
                        decimal_places=8,
                        max_digits=24,
                        validators=[django.core.validators.MinValueValidator(Decimal("1E-8"))],
                    ),
                ),
                (
                    "min_amount",
                    models.DecimalField(
                        decimal_places=8,
                        default=0,
                        max_digits=24,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                (
                    "max_amount",
                    models.DecimalField(
                        decimal_places=8,
                        max_digits=24,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                (
                    "verify_from",
                    models.DecimalField(
                        blank=True,
                        decimal_places=8,
                        max_digits=24,
                        null=True,
                        validators=[django.core.validators.MinValueValidator(Decimal("0"))],
                    ),
                ),
                ("get_digits", models.PositiveSmallIntegerField(default=2)),
                ("is_active", models.BooleanField(default=True)),
                ("updated_at", models.DateTimeField(auto_now=True)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        default=tenants.scope.current_tenant_id,
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "exchange_rates",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="exchange_rates_tenant_id_key"),
                    models.UniqueConstraint(
                        fields=("tenant", "give", "get"),
                        name="exchange_rates_pair_key",
                        violation_error_message="There is a rate for this pair.",
                    ),
                    models.CheckConstraint(
                        condition=models.Q(
                            ("get_digits__lte", 8),
                            ("max_amount__gte", models.F("min_amount")),
                            ("min_amount__gte", 0),
                            ("rate__gt", 0),
                        ),
                        name="exchange_rates_amounts_check",
                        violation_error_message="The largest amount is below the smallest one, or there are over 8 digits.",
                    ),
                ],
            },
        ),
        migrations.CreateModel(
            name="ExchangeRequisites",
            fields=[
                ("id", models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name="ID")),
                (
                    "currency",
                    models.CharField(
                        max_length=12,
                        validators=[
                            django.core.validators.RegexValidator(
                                "^[A-Z0-9]{2,12}\\Z", "A currency is 2 to 12 capital letters and digits."
                            )
                        ],
                    ),
                ),
                ("details", models.JSONField(default=dict)),
                (
                    "tenant",
                    models.ForeignKey(
                        db_index=False,
                        default=tenants.scope.current_tenant_id,
                        editable=False,
                        on_delete=django.db.models.deletion.CASCADE,
                        related_name="+",
                        to="tenants.tenant",
                    ),
                ),
            ],
            options={
                "db_table": "exchange_requisites",
                "constraints": [
                    models.UniqueConstraint(fields=("tenant", "id"), name="exchange_requisites_tenant_id_key"),
                    models.UniqueConstraint(fields=("tenant", "currency"), name="exchange_requisites_currency_key"),
                ],
            },
        ),
        *(protect(f"exchange_{name}") for name in ("desks", "rates", "requisites", "customers", "orders")),
    ]
