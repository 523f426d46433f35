"""Every address of the service. Pages of a tenant live under /t/<slug>/, the API under /api/ (bearer tokens only)."""

from django.urls import include, path

from quality.pages import language, theme, zone

urlpatterns = [
    path("", include("quality.pages.people_urls")),
    path("", include("quality.api.urls")),
    path("theme/", theme.choose, name="theme"),
    path("language/", language.choose, name="language"),
    path("zone/", zone.choose, name="zone"),
    path("t/<slug:slug>/", include("quality.pages.urls")),
    path("t/<slug:slug>/", include("quality.pages.settings_urls")),
    path("t/<slug:slug>/", include("quality.pages.agreement_urls")),
]

handler400 = "quality.api.problems.bad_request"
handler403 = "quality.api.problems.permission_denied"
handler404 = "quality.api.problems.not_found"
handler500 = "quality.api.problems.server_error"
