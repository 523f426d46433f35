"""Pages on which a tenant is configured, under /t/<slug>/."""

from django.urls import path

from quality.pages import endpoints, secrets

urlpatterns = [
    path("models/", endpoints.model_list, name="model-list"),
    path("models/new/", endpoints.model_new, name="model-new"),
    path("models/create/", endpoints.model_create, name="model-create"),
    path("models/<int:pk>/edit/", endpoints.model_edit, name="model-edit"),
    path("models/<int:pk>/save/", endpoints.model_save, name="model-save"),
    path("models/<int:pk>/delete/", endpoints.model_delete, name="model-delete"),
    path("models/<int:pk>/test/", endpoints.model_test, name="model-test"),
    path("secrets/", secrets.secret_list, name="secret-list"),
    path("secrets/set/", secrets.secret_set, name="secret-set"),
    path("secrets/<int:pk>/delete/", secrets.secret_delete, name="secret-delete"),
]
