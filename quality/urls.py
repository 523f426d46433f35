"""Every address of the service. Pages of a tenant live under /t/<slug>/, the API under /api/ (bearer tokens only)."""

from django.urls import include, path

urlpatterns = [
    path("", include("quality.pages.people_urls")),
    path("", include("quality.api.urls")),
    path("t/<slug:slug>/", include("quality.pages.urls")),
]
