"""Every address of the service. Pages of a tenant live under /t/<slug>/, the API under /api/ (bearer tokens only)."""

from django.urls import include, path

from quality.pages import theme

urlpatterns = [
    path("", include("quality.pages.people_urls")),
    path("", include("quality.api.urls")),
    path("theme/", theme.choose, name="theme"),
    path("t/<slug:slug>/", include("quality.pages.urls")),
]
