"""What the launcher tells people."""


class LaunchError(Exception):
    """Something that stops the start; the text says what, where, and what to do next."""
