"""Uploaded files: straight to disk, never beyond the limit, and only from who is signed in."""

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import SkipFile, TemporaryFileUploadHandler
from django.http import HttpRequest

# The pages that take files: traces, cases, and definitions of tools.
LIMITS = {
    "import-upload": "IMPORT_MAX_BYTES",
    "case-import": "IMPORT_MAX_BYTES",
    "tools-import": "DATA_UPLOAD_MAX_MEMORY_SIZE",
}


class ImportUploadHandler(TemporaryFileUploadHandler):
    """Reads files for the pages that take some and only for who is signed in: the form is parsed before any view runs,
    so anybody could fill the disk otherwise. A file beyond the page's limit is dropped and named in
    `request.too_large_uploads`; the rest of the request is read on, so that the browser gets to see the answer."""

    def handle_raw_input(self, *args: Any, **options: Any) -> None:
        match = getattr(self.request, "resolver_match", None)
        user = getattr(self.request, "user", None)
        limit = LIMITS.get(match.url_name or "") if match else None
        self.is_wanted = bool(limit and user and user.is_authenticated)
        self.limit: int = getattr(settings, limit) if limit else 0
        self.left = self.limit

    def new_file(self, *args: Any, **options: Any) -> None:
        if not self.is_wanted:
            raise SkipFile
        super().new_file(*args, **options)
        self.left = self.limit

    def receive_data_chunk(self, raw_data: bytes, start: int) -> None:
        self.left -= len(raw_data)
        if self.left < 0:
            self.file.close()
            refused = getattr(self.request, "too_large_uploads", [])
            self.request.too_large_uploads = [*refused, self.file_name]  # type: ignore[union-attr]
            raise SkipFile
        super().receive_data_chunk(raw_data, start)


def too_large(request: HttpRequest) -> list[str]:
    """Names of the files that were dropped for their size. The form has been read before any view runs."""
    return list(getattr(request, "too_large_uploads", []))
