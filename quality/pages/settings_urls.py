"""Pages on which a tenant is configured, under /t/<slug>/."""

from django.urls import path

from quality.pages import secrets

urlpatterns = [
    path("secrets/", secrets.secret_list, name="secret-list"),
    path("secrets/set/", secrets.secret_set, name="secret-set"),
    path("secrets/<int:pk>/delete/", secrets.secret_delete, name="secret-delete"),
]
