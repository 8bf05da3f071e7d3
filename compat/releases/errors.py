"""What can go wrong while a release is fetched. Every message is one sentence meant for a user."""


class ReleaseError(Exception):
    """A release cannot be had: unknown, unpublished, unreachable, damaged, or no room for it."""


class Interrupted(ReleaseError):
    """A file ended early; worth another try."""


class MissingExtra(ReleaseError):
    """A package that only the extra `attnfix[cpu]` brings is not installed."""

    def __init__(self, package: str | None) -> None:
        super().__init__(f'Fetching a release needs {package or "more packages"}: pip install "attnfix[cpu]"')
