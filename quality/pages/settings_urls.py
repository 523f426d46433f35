"""Pages on which a tenant is configured, under /t/<slug>/."""

from django.urls import path

from quality.pages import booking, endpoints, secrets, tools

urlpatterns = [
    path("tools/", tools.tool_list, name="tool-list"),
    path("tools/new/", tools.tool_new, name="tool-new"),
    path("tools/create/", tools.tool_create, name="tool-create"),
    path("tools/check/", tools.tool_check, name="tool-check"),
    path("tools/import/", tools.tools_import, name="tools-import"),
    path("tools/export.json", tools.tools_export, name="tools-export"),
    path("tools/limits/", tools.limits_set, name="limits-set"),
    path("tools/scripts/", tools.scripts_switch, name="scripts-switch"),
    path("tools/switch/", tools.tool_switch, name="tool-switch"),
    path("tools/<int:pk>/", tools.tool_detail, name="tool-detail"),
    path("tools/<int:pk>/edit/", tools.tool_edit, name="tool-edit"),
    path("tools/<int:pk>/save/", tools.tool_save, name="tool-save"),
    path("tools/<int:pk>/enable/", tools.tool_enable, name="tool-enable"),
    path("tools/<int:pk>/delete/", tools.tool_delete, name="tool-delete"),
    path("tools/<int:pk>/try/", tools.tool_try, name="tool-try"),
    path("tools/<int:pk>/restore/<int:number>/", tools.tool_restore, name="tool-restore"),
    path("booking/", booking.booking_page, name="booking"),
    path("booking/set/", booking.booking_set, name="booking-set"),
    path("booking/remove/", booking.booking_remove, name="booking-remove"),
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
