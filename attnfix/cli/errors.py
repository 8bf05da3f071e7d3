"""What a user sees instead of a traceback."""


class CliError(Exception):
    """One sentence for the user; `code` is the exit code: 1 it did not work, 2 the arguments are wrong."""

    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code
