"""Pages about how people agree and how they work, under /t/<slug>/."""

from django.urls import path

from quality.pages import agreement, reviewers
from quality.pages.agreement_sheets import SHEETS

urlpatterns = [
    path("agreement/", agreement.agreement, name="agreement"),
    path("agreement/apart/", agreement.agreement_apart, name="agreement-apart"),
    path("agreement/judge/", agreement.agreement_judge, name="agreement-judge"),
    path("agreement/judge.csv", agreement.agreement_judge_sheet, name="agreement-judge-sheet"),
    *[
        path(f"agreement/{name}.csv", agreement.agreement_sheet, {"name": name}, name=f"agreement-{name}")
        for name in SHEETS
    ],
    path("reviewers/", reviewers.reviewers, name="reviewers"),
    path("reviewers.csv", reviewers.reviewers_sheet, name="reviewers-sheet"),
    path("reviewers/<int:pk>/", reviewers.reviewer, name="reviewer"),
]
