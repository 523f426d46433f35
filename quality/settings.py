"""Settings, all from the environment. A wrong value stops the start and names the variable (README lists them).

A secret may also come from a file: NAME_FILE holds the path.
"""

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import environ
import redis
from django.core.exceptions import ImproperlyConfigured
from django.utils.csp import CSP
from redis.backoff import NoBackoff
from redis.retry import Retry

from engine.net.addresses import parse_networks
from tenants.keys import parse_keks

BASE_DIR = Path(__file__).resolve().parent.parent

env = environ.FileAwareEnv()
_BOOLEANS = ("true", "false", "1", "0", "yes", "no", "on", "off")


def read(name: str, kind: Any, **options: Any) -> Any:
    """Value of one environment variable as `kind` (an environ caster); raises ImproperlyConfigured naming it."""
    try:
        if kind == "bool" and env.str(name, default="false").lower() not in _BOOLEANS:
            raise ValueError(f"use one of {', '.join(_BOOLEANS)}")  # environ takes any other word for false
        return getattr(env, kind)(name, **options)
    except ImproperlyConfigured:
        raise
    except Exception as error:
        raise ImproperlyConfigured(f"{name}: {env.str(name, default='')!r} is not a valid {kind} ({error}).") from error


def database(name: str, default: str = "") -> dict[str, Any]:
    """Django's settings of the database whose DSN is in the variable `name`."""
    dsn = read(name, "str", default=default)
    if urlsplit(dsn).scheme not in {"postgres", "postgresql"}:
        raise ImproperlyConfigured(
            f"{name}: expected postgresql://user:password@host:port/name. Only PostgreSQL works."
        )
    return {**environ.Env.db_url_config(dsn), "ENGINE": "django.db.backends.postgresql"}


# --- basics ----------------------------------------------------------------------------------------------------------
DEBUG = read("DEBUG", "bool", default=False)
SECRET_KEY = read("SECRET_KEY", "str", default="")
if not SECRET_KEY:
    if read("DATABASE_URL", "str", default=""):
        raise ImproperlyConfigured("SECRET_KEY: not set. Give at least 50 random characters, or SECRET_KEY_FILE.")
    SECRET_KEY = "unset: good for commands that need no database, never served"  # noqa: S105
if len(SECRET_KEY) < 50:
    raise ImproperlyConfigured(f"SECRET_KEY: {len(SECRET_KEY)} characters. Give at least 50 random ones.")
SECRET_KEY_FALLBACKS = read("SECRET_KEY_FALLBACKS", "list", default=[])
# Secrets of tenants are sealed with these and never with SECRET_KEY. "k2:base64,k1:base64": the first one writes.
try:
    APP_KEKS = parse_keks(read("APP_KEKS", "str", default=""))
except ValueError as _error:
    raise ImproperlyConfigured(f"APP_KEKS: {_error}.") from _error
ALLOWED_HOSTS = read("ALLOWED_HOSTS", "list", default=["localhost", "127.0.0.1", "[::1]"])
CSRF_TRUSTED_ORIGINS = read("CSRF_TRUSTED_ORIGINS", "list", default=[])
STATE_DIR = Path(read("STATE_DIR", "str", default=str(BASE_DIR / ".state")))
LOG_LEVEL = read("LOG_LEVEL", "str", default="INFO").upper()
if LOG_LEVEL not in {"DEBUG", "INFO", "WARNING", "ERROR"}:
    raise ImproperlyConfigured(f"LOG_LEVEL: {LOG_LEVEL!r} is none of DEBUG, INFO, WARNING, ERROR.")

# Served over https only? Turns on secure cookies, HSTS and the redirect. Off for a service on loopback.
SECURE = read("SECURE", "bool", default=False)
# The demo on a machine of one's own: its programs may use /ws with no token, as the demo's operator.
DEMO_ON_LOOPBACK = read("DEMO_ON_LOOPBACK", "bool", default=False)
if DEMO_ON_LOOPBACK and SECURE:
    raise ImproperlyConfigured("DEMO_ON_LOOPBACK: not with SECURE. It opens the demo to every program of the machine.")

ROOT_URLCONF = "quality.urls"
ASGI_APPLICATION = "quality.asgi.application"
WSGI_APPLICATION = "quality.wsgi.application"
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
APPEND_SLASH = False

INSTALLED_APPS = [
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "django.contrib.postgres",
    "django_htmx",
    "rest_framework",
    "drf_spectacular",
    "drf_spectacular_sidecar",
    "tenants.apps.TenantsConfig",
    "quality.apps.QualityConfig",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.csp.ContentSecurityPolicyMiddleware",
    "whitenoise.middleware.WhiteNoiseMiddleware",
    "quality.middleware.RequestIdMiddleware",
    "quality.bodies.BodyLimitMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
    "django_htmx.middleware.HtmxMiddleware",
    "quality.middleware.SessionRenewalMiddleware",
    "quality.middleware.NoStoreMiddleware",
    "quality.languages.LanguageMiddleware",
    "quality.middleware.BusyMiddleware",
    "quality.middleware.TimeZoneMiddleware",
]

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": False,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.template.context_processors.csp",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
                "quality.pages.context.shell",
            ],
            "loaders": [
                (
                    "django.template.loaders.cached.Loader",
                    ["django.template.loaders.filesystem.Loader", "django.template.loaders.app_directories.Loader"],
                )
            ]
            if not DEBUG
            else ["django.template.loaders.filesystem.Loader", "django.template.loaders.app_directories.Loader"],
        },
    }
]

# --- database: three roles on one database, see docs/architecture.md -------------------------------------------------
# Commands that touch no database (collectstatic, makemigrations --check) run with none of these set.
_UNSET = "postgresql://qlab_app@127.0.0.1:1/qlab"
DATABASES = {"default": database("DATABASE_URL", _UNSET)}
# One short-lived pool a process: under ASGI each request may run in a thread of its own, and CONN_MAX_AGE would then
# keep a connection for each of them until PostgreSQL refuses more. A connection is tried before it is given out: else
# each of the pool would fail one request after a restart of PostgreSQL.
DATABASES["default"]["CONN_MAX_AGE"] = 0
DATABASES["default"]["CONN_HEALTH_CHECKS"] = True
DATABASE_POOL_SIZE = read("DATABASE_POOL_SIZE", "int", default=16)
if not 2 <= DATABASE_POOL_SIZE <= 100:
    raise ImproperlyConfigured("DATABASE_POOL_SIZE: give a number from 2 to 100.")
DATABASES["default"].setdefault("OPTIONS", {})["pool"] = {
    "min_size": 1,
    "max_size": DATABASE_POOL_SIZE,
    "timeout": 10,
    # A lost connection is sought again after 1, 2, 4, 8 … seconds: whoever waits for it after an outage would wait as
    # long again. Given up soon, it makes room for one that is asked for anew.
    "reconnect_timeout": 5,
}
for _alias, _name in {"owner": "DATABASE_OWNER_URL", "janitor": "DATABASE_JANITOR_URL"}.items():
    if read(_name, "str", default=""):
        DATABASES[_alias] = database(_name)
DATABASE_ROUTERS = ["tenants.routers.OwnerMigrates"]
DATABASE_ROLES = {
    "owner": DATABASES.get("owner", {}).get("USER", "qlab_owner"),
    "app": DATABASES["default"]["USER"],
    "janitor": DATABASES.get("janitor", {}).get("USER", "qlab_janitor"),
    "lookup": read("DATABASE_LOOKUP_ROLE", "str", default="qlab_lookup"),
}

# --- cache and queue -------------------------------------------------------------------------------------------------
REDIS_URL = read("REDIS_URL", "str", default="")
if REDIS_URL:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": REDIS_URL}}
    # It is asked while a connection to the database is held: better no answer than a late one. Tried again is only what
    # met a connection that a restart of Redis had closed.
    CACHES["default"]["OPTIONS"] = {
        "pool_class": "tenants.shared.OnePool",
        "socket_timeout": 2,
        "socket_connect_timeout": 2,
        "retry": Retry(NoBackoff(), 1, supported_errors=(redis.ConnectionError,)),
    }
else:
    CACHES = {"default": {"BACKEND": "django.core.cache.backends.db.DatabaseCache", "LOCATION": "cache_entries"}}
    CACHES["default"]["OPTIONS"] = {"MAX_ENTRIES": 100_000}  # Django's 300 would cull definitions that are in use

# --- turns -----------------------------------------------------------------------------------------------------------
TURN_LEASE_S = read("TURN_LEASE_S", "float", default=90.0)  # a worker that renews it no more has lost its turns
TURN_SWEEP_S = read("TURN_SWEEP_S", "float", default=30.0)  # how often workers look for turns without being told
TURN_SLOTS = read("TURN_SLOTS", "int", default=200)  # turns at once in one worker process
TURN_TENANT_SLOTS = read("TURN_TENANT_SLOTS", "int", default=100)  # turns of one tenant at once, in all processes
TURN_SETUP = read("TURN_SETUP", "str", default="quality.turns.resolver.from_settings")
# What one turn may use up; a tenant may set less. 0: no limit.
TURN_MAX_CALLS = read("TURN_MAX_CALLS", "int", default=32)
TURN_MAX_TOKENS = read("TURN_MAX_TOKENS", "int", default=0)
TURN_MAX_COST = read("TURN_MAX_COST", "float", default=0.0)
TURN_WALL_TIME_S = read("TURN_WALL_TIME_S", "float", default=300.0)
if min(TURN_MAX_CALLS, TURN_MAX_TOKENS, TURN_MAX_COST) < 0 or not 0 < TURN_WALL_TIME_S <= 86_400:
    raise ImproperlyConfigured("TURN_MAX_…: 0 or more; TURN_WALL_TIME_S: more than 0, at most 86400 (seconds).")
MODEL_TIMEOUT_S = read("MODEL_TIMEOUT_S", "float", default=120.0)  # for one answer, inside the turn's own time
if not 0 < MODEL_TIMEOUT_S <= 86_400:
    raise ImproperlyConfigured("MODEL_TIMEOUT_S must be more than 0, at most 86400 (seconds).")
MODEL_BREAKER_FAILURES = read("MODEL_BREAKER_FAILURES", "int", default=5)  # in a row; then the model is paused
MODEL_BREAKER_OPEN_S = read("MODEL_BREAKER_OPEN_S", "float", default=30.0)
if MODEL_BREAKER_FAILURES < 1 or not MODEL_BREAKER_OPEN_S > 0:
    raise ImproperlyConfigured("MODEL_BREAKER_FAILURES must be 1 or more, MODEL_BREAKER_OPEN_S more than 0 (seconds).")
if TURN_LEASE_S < 3 or not TURN_SWEEP_S > 0:
    raise ImproperlyConfigured("TURN_LEASE_S must be 3 or more, TURN_SWEEP_S more than 0 (seconds).")

# --- replays ---------------------------------------------------------------------------------------------------------
REPLAY_LEASE_S = read("REPLAY_LEASE_S", "float", default=60.0)  # a worker that renews it no more has lost its replay
REPLAY_SLICE_S = read("REPLAY_SLICE_S", "float", default=60.0)  # then a replay lets other jobs of its queue go first
if REPLAY_LEASE_S < 3 or not 0 < REPLAY_SLICE_S <= 600:
    raise ImproperlyConfigured("REPLAY_LEASE_S must be 3 or more, REPLAY_SLICE_S more than 0, at most 600 (seconds).")

# --- the recording gateway -------------------------------------------------------------------------------------------
GATEWAY_RATE_PER_MINUTE = read("GATEWAY_RATE_PER_MINUTE", "int", default=600)  # requests of a token that has no rate
GATEWAY_MAX_BYTES = read("GATEWAY_MAX_BYTES", "int", default=16 * 1024 * 1024)  # of one request
if GATEWAY_RATE_PER_MINUTE < 1 or GATEWAY_MAX_BYTES < 1024:
    raise ImproperlyConfigured("GATEWAY_RATE_PER_MINUTE: 1 or more; GATEWAY_MAX_BYTES: 1024 or more (bytes).")

# --- review queues ---------------------------------------------------------------------------------------------------
REVIEW_CLAIM_MINUTES = read("REVIEW_CLAIM_MINUTES", "int", default=15)  # that an item is kept without being touched
if not 1 <= REVIEW_CLAIM_MINUTES <= 1440:
    raise ImproperlyConfigured("REVIEW_CLAIM_MINUTES: 1 to 1440 (minutes).")

# --- spans over OTLP -------------------------------------------------------------------------------------------------
OTLP_RATE_PER_MINUTE = read("OTLP_RATE_PER_MINUTE", "int", default=1200)  # requests of a token
OTLP_MAX_BYTES = read("OTLP_MAX_BYTES", "int", default=20 * 1024 * 1024)  # of one request, as sent and unpacked
OTLP_KEEP_DAYS = read("OTLP_KEEP_DAYS", "int", default=30)  # spans of traces that nothing was added to
if OTLP_RATE_PER_MINUTE < 1 or OTLP_MAX_BYTES < 1024 or not 1 <= OTLP_KEEP_DAYS <= 3650:
    raise ImproperlyConfigured(
        "OTLP_RATE_PER_MINUTE: 1 or more; OTLP_MAX_BYTES: 1024 or more (bytes); OTLP_KEEP_DAYS: 1 to 3650."
    )

# --- webhooks --------------------------------------------------------------------------------------------------------
WEBHOOK_KEEP_DAYS = read("WEBHOOK_KEEP_DAYS", "int", default=30)  # messages that were sent or given up
if not 1 <= WEBHOOK_KEEP_DAYS <= 3650:
    raise ImproperlyConfigured("WEBHOOK_KEEP_DAYS: 1 to 3650.")

# --- the outside: what tools and models reach beyond public addresses on the usual ports ------------------------------
OUTBOUND_ALLOW_CIDRS = read("OUTBOUND_ALLOW_CIDRS", "list", default=[])
OUTBOUND_ALLOW_PORTS = read("OUTBOUND_ALLOW_PORTS", "list", default=[], cast=int)
OUTBOUND_HTTPS_ONLY = read("OUTBOUND_HTTPS_ONLY", "bool", default=False)
OUTBOUND_CA_FILE = read("OUTBOUND_CA_FILE", "str", default="")
try:
    parse_networks(OUTBOUND_ALLOW_CIDRS)
except ValueError as _error:
    raise ImproperlyConfigured(f"OUTBOUND_ALLOW_CIDRS: {_error}.") from _error
if not all(0 < _port < 65536 for _port in OUTBOUND_ALLOW_PORTS):
    raise ImproperlyConfigured("OUTBOUND_ALLOW_PORTS: a port is a number from 1 to 65535.")
if OUTBOUND_CA_FILE and not Path(OUTBOUND_CA_FILE).is_file():
    raise ImproperlyConfigured(f"OUTBOUND_CA_FILE: there is no file {OUTBOUND_CA_FILE}.")

# --- messages: where links in them lead, and how e-mail leaves -------------------------------------------------------
PUBLIC_URL = read("PUBLIC_URL", "str", default="http://localhost:8787").rstrip("/")
if not re.fullmatch(r"https?://[^/?#\s@]+", PUBLIC_URL):
    raise ImproperlyConfigured("PUBLIC_URL: expected http(s)://host, with a port if need be, and no path.")
if EMAIL_URL := read("EMAIL_URL", "str", default=""):
    if urlsplit(EMAIL_URL).scheme not in {"smtp", "smtp+tls", "smtp+ssl"}:
        raise ImproperlyConfigured("EMAIL_URL: expected smtp+tls://user:password@host:port, or smtp+ssl:// or smtp://.")
    _mail = read("EMAIL_URL", "email_url")
    _is_ssl = _mail.get("EMAIL_USE_SSL", False)
    MAILERS = {
        "default": {
            "BACKEND": _mail["EMAIL_BACKEND"],
            "OPTIONS": {
                "host": _mail["EMAIL_HOST"],
                "port": _mail["EMAIL_PORT"] or (465 if _is_ssl else 25),
                "username": _mail["EMAIL_HOST_USER"] or "",
                "password": _mail["EMAIL_HOST_PASSWORD"] or "",
                "use_tls": _mail.get("EMAIL_USE_TLS", False),
                "use_ssl": _is_ssl,
                "timeout": 10,
            },
        }
    }
DEFAULT_FROM_EMAIL = read("EMAIL_FROM", "str", default="Quality Lab <quality-lab@localhost>")

# --- tools: the operator's definitions, defaults and bounds ----------------------------------------------------------
LLM_TOOLS_FILE = read("LLM_TOOLS_FILE", "str", default="")
# The file's definitions alone: tools that a tenant keeps, and those built in, have switches of their own. A plain
# "false" refuses also what tenants would send in the file's place.
LLM_TOOLS_ENABLED = read("LLM_TOOLS_ENABLED", "bool", default=bool(LLM_TOOLS_FILE.strip()))
LLM_TOOLS_REPLACEABLE = read("LLM_TOOLS_ENABLED", "bool", default=True)
LLM_TOOL_MAX_ITERATIONS = read("LLM_TOOL_MAX_ITERATIONS", "int", default=4)
LLM_TOOL_TIMEOUT_SECS = read("LLM_TOOL_TIMEOUT_SECS", "float", default=15.0)
LLM_TOOL_RESULT_MAX_CHARS = read("LLM_TOOL_RESULT_MAX_CHARS", "int", default=2000)
LLM_TOOL_MAX_ITERATIONS_BOUND = read("LLM_TOOL_MAX_ITERATIONS_BOUND", "int", default=32)
LLM_TOOL_TIMEOUT_SECS_BOUND = read("LLM_TOOL_TIMEOUT_SECS_BOUND", "float", default=120.0)
LLM_TOOL_RESULT_MAX_CHARS_BOUND = read("LLM_TOOL_RESULT_MAX_CHARS_BOUND", "int", default=100_000)
for _name in ("LLM_TOOL_MAX_ITERATIONS", "LLM_TOOL_TIMEOUT_SECS", "LLM_TOOL_RESULT_MAX_CHARS"):
    if not 0 < globals()[_name] <= globals()[f"{_name}_BOUND"]:
        raise ImproperlyConfigured(f"{_name}: must be more than 0 and no more than {_name}_BOUND.")
SCRIPT_TOOLS_DIR = read("SCRIPT_TOOLS_DIR", "str", default="")
if SCRIPT_TOOLS_DIR and not Path(SCRIPT_TOOLS_DIR).is_dir():
    raise ImproperlyConfigured(f"SCRIPT_TOOLS_DIR: there is no folder {SCRIPT_TOOLS_DIR}.")
TOOL_DATABASES = read("TOOL_DATABASES", "json", default={})
if not isinstance(TOOL_DATABASES, dict) or not all(
    isinstance(_one, dict) and isinstance(_one.get("dsn"), str) and isinstance(_one.get("description", ""), str)
    for _one in TOOL_DATABASES.values()
):
    raise ImproperlyConfigured('TOOL_DATABASES: expected {"name": {"dsn": "postgresql://…", "description": "…"}}.')

# --- people ----------------------------------------------------------------------------------------------------------
AUTH_USER_MODEL = "tenants.User"
AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.ModelBackend"]
PASSWORD_HASHERS = [
    "django.contrib.auth.hashers.Argon2PasswordHasher",
    "django.contrib.auth.hashers.PBKDF2PasswordHasher",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator", "OPTIONS": {"min_length": 10}},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
]
LOGIN_URL = "signin"
LOGIN_REDIRECT_URL = "home"
LOGOUT_REDIRECT_URL = "signin"
SIGNIN_LINK_AGE_S = 24 * 3600

SESSION_COOKIE_NAME = "__Host-qlab_session" if SECURE else "qlab_session"
SESSION_COOKIE_AGE = 12 * 3600  # without a request; SessionRenewalMiddleware renews it
SESSION_MAX_AGE_S = 7 * 24 * 3600  # then one signs in again, however busy one was
SESSION_COOKIE_HTTPONLY = True
SESSION_COOKIE_SAMESITE = "Lax"
SESSION_COOKIE_SECURE = CSRF_COOKIE_SECURE = SECURE
CSRF_COOKIE_NAME = "__Host-qlab_csrf" if SECURE else "qlab_csrf"
CSRF_COOKIE_HTTPONLY = True  # pages carry the token in hx-headers and forms
SECURE_SSL_REDIRECT = SECURE and read("SECURE_SSL_REDIRECT", "bool", default=True)
SECURE_HSTS_SECONDS = 31_536_000 if SECURE else 0
SECURE_HSTS_INCLUDE_SUBDOMAINS = SECURE_HSTS_PRELOAD = SECURE
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https") if SECURE else None
SECURE_REFERRER_POLICY = "same-origin"
SECURE_CROSS_ORIGIN_OPENER_POLICY = "same-origin"
X_FRAME_OPTIONS = "DENY"
SECURE_CSP = {
    "default-src": [CSP.NONE],
    "script-src": [CSP.SELF, CSP.NONCE],
    "style-src": [CSP.SELF, CSP.NONCE],
    "img-src": [CSP.SELF],
    "font-src": [CSP.SELF],
    "connect-src": [CSP.SELF],
    "manifest-src": [CSP.SELF],
    "form-action": [CSP.SELF],
    "frame-ancestors": [CSP.NONE],
    "base-uri": [CSP.NONE],
}

# --- words, time, files ----------------------------------------------------------------------------------------------
LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("it", "Italian"), ("es", "Spanish"), ("ru", "Russian")]
LOCALE_PATHS = [BASE_DIR / "locale"]
FORMAT_MODULE_PATH = ["quality.formats"]
USE_I18N = True
USE_TZ = True
TIME_ZONE = "UTC"
USE_THOUSAND_SEPARATOR = True

STATIC_URL = "/static/"
STATIC_ROOT = Path(read("STATIC_ROOT", "str", default=str(STATE_DIR / "static")))
STATICFILES_DIRS = [BASE_DIR / "static"]
STORAGES = {
    "default": {"BACKEND": "django.core.files.storage.FileSystemStorage"},
    "staticfiles": {
        "BACKEND": "django.contrib.staticfiles.storage.StaticFilesStorage"
        if DEBUG
        else "whitenoise.storage.CompressedManifestStaticFilesStorage"
    },
}
# Traces arrive as files of up to 512 MiB; they go straight to disk, never through memory.
MEDIA_ROOT = STATE_DIR / "uploads"
FILE_UPLOAD_HANDLERS = ["quality.pages.uploads.ImportUploadHandler"]
FILE_UPLOAD_TEMP_DIR = str(MEDIA_ROOT)
MEDIA_ROOT.mkdir(parents=True, exist_ok=True, mode=0o700)
FILE_UPLOAD_PERMISSIONS = 0o600
DATA_UPLOAD_MAX_MEMORY_SIZE = 5 * 1024 * 1024
DATA_UPLOAD_MAX_NUMBER_FIELDS = 1000
DATA_UPLOAD_MAX_NUMBER_FILES = 20
IMPORT_MAX_BYTES = 512 * 1024 * 1024
EXPORT_JOB_ROWS = read("EXPORT_JOB_ROWS", "int", default=50_000)  # more are made into a file in the background
if EXPORT_JOB_ROWS < 0:
    raise ImproperlyConfigured("EXPORT_JOB_ROWS: must be 0 or more.")

# --- API -------------------------------------------------------------------------------------------------------------
REST_FRAMEWORK = {
    "DEFAULT_AUTHENTICATION_CLASSES": ["quality.api.auth.TokenAuthentication"],
    "DEFAULT_PERMISSION_CLASSES": ["quality.api.auth.HasScope"],
    "DEFAULT_RENDERER_CLASSES": ["quality.api.rendering.JSONRenderer"],
    "DEFAULT_PARSER_CLASSES": ["quality.api.parsers.StrictJSONParser"],
    "DEFAULT_SCHEMA_CLASS": "drf_spectacular.openapi.AutoSchema",
    "EXCEPTION_HANDLER": "quality.api.problems.handle",
    "UNAUTHENTICATED_USER": None,
    "UNAUTHENTICATED_TOKEN": None,
}
SPECTACULAR_SETTINGS = {
    "TITLE": "Quality Lab",
    "DESCRIPTION": "Record, review, improve and guard the tool calls of agents.",
    "VERSION": "0.1.0",
    "SERVE_INCLUDE_SCHEMA": False,
    "SERVE_PERMISSIONS": ["rest_framework.permissions.AllowAny"],
    "SERVE_AUTHENTICATION": [],
    "POSTPROCESSING_HOOKS": ["drf_spectacular.hooks.postprocess_schema_enums", "quality.api.docs.add_problems"],
    "ENUM_NAME_OVERRIDES": {
        "ArtifactKind": "quality.models.ArtifactKind",
        "CoachItemKind": "quality.models.CoachItem.Kind",
        "CoachItemState": "quality.models.CoachItem.State",
        "CoachState": "quality.models.CoachState",
        "GroupState": "quality.improve.groups.STATES",
        "ProposalState": "quality.models.ProposalState",
        "ReplayState": "quality.models.ReplayState",
        "ReplayOutcome": "quality.api.replay_shapes.OUTCOME_CHOICES",
        "ReplaySideName": "quality.models.ReplaySide.Name",
        "FindingOutcome": "quality.models.ReplayFinding.Outcome",
        "NotificationState": "quality.models.ReplayNotification.State",
        "SuggestionState": "quality.models.Suggestion.State",
        "SuggestionRunState": "quality.models.SuggestionRun.State",
        "QueueState": "quality.models.ReviewQueue.State",
        "QueueKind": "quality.models.ReviewQueue.Kind",
        "EntryState": "quality.models.QueueEntry.State",
        "AssignmentState": "quality.models.Assignment.State",
        "BulkState": "quality.models.bulk.BulkState",
        "BulkKind": "quality.models.bulk.BulkKind",
        "MaskKind": "tenants.models.mask.MaskRule.Kind",
        "MaskSeenBy": "tenants.models.mask.MaskRule.SeenBy",
    },
}

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "filters": {"request_id": {"()": "quality.middleware.RequestIdFilter"}},
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s [%(request_id)s] %(message)s"}},
    "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "line", "filters": ["request_id"]}},
    "root": {"handlers": ["stderr"], "level": LOG_LEVEL},
}
