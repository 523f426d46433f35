"""Uploaded trace files: straight to disk, never beyond the limit, and only from who may import."""

from typing import Any

from django.conf import settings
from django.core.files.uploadhandler import SkipFile, TemporaryFileUploadHandler
from django.http import HttpRequest

PAGE = "import-upload"


class ImportUploadHandler(TemporaryFileUploadHandler):
    """Reads files for the import page alone and only for who is signed in: the form is parsed before any view runs, so
    anybody could fill the disk otherwise. A file beyond IMPORT_MAX_BYTES is dropped and named in
    `request.too_large_uploads`; the rest of the request is read on, so that the browser gets to see the answer."""

    def handle_raw_input(self, *args: Any, **options: Any) -> None:
        match = getattr(self.request, "resolver_match", None)
        user = getattr(self.request, "user", None)
        self.is_wanted = bool(match and match.url_name == PAGE and user and user.is_authenticated)
        self.left = settings.IMPORT_MAX_BYTES

    def new_file(self, *args: Any, **options: Any) -> None:
        if not self.is_wanted:
            raise SkipFile
        super().new_file(*args, **options)
        self.left = settings.IMPORT_MAX_BYTES

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
