from django.urls import path

from quality.pages import account_keys, audit, members, people, tokens

urlpatterns = [
    path("", people.home, name="home"),
    path("signin/", people.signin, name="signin"),
    path("signin/once/<str:uid>/<str:token>/", people.signin_once, name="signin-once"),
    path("signout/", people.signout, name="signout"),
    path("account/", people.account, name="account"),
    path("account/keys/", account_keys.account_keys, name="account-keys"),
    path("invitations/<str:secret>/", people.invitation, name="invitation"),
    path("t/<slug:slug>/members/", members.member_list, name="member-list"),
    path("t/<slug:slug>/members/invite/", members.invitation_create, name="invitation-create"),
    path("t/<slug:slug>/members/<int:pk>/role/", members.member_role, name="member-role"),
    path("t/<slug:slug>/members/<int:pk>/remove/", members.member_remove, name="member-remove"),
    path("t/<slug:slug>/invitations/<int:pk>/revoke/", members.invitation_revoke, name="invitation-revoke"),
    path("t/<slug:slug>/tokens/", tokens.token_list, name="token-list"),
    path("t/<slug:slug>/tokens/create/", tokens.token_create, name="token-create"),
    path("t/<slug:slug>/tokens/<int:pk>/revoke/", tokens.token_revoke, name="token-revoke"),
    path("t/<slug:slug>/audit/", audit.audit_list, name="audit-list"),
]
