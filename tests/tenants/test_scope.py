def test_x(db):
    from tenants.models import Tenant
    t = Tenant.objects.create_tenant(slug="acme", name="Acme")
    assert t.pk
