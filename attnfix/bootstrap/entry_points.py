"""The entry point of both engines, named in pyproject.toml: for a process whose Python has read no `.pth` file."""

from . import import_hook


def activate() -> None:
    """Install the import hook, catch up with the modules that are loaded already. Idempotent.

    Lets no exception out: vLLM calls plugins unguarded.
    """
    try:
        import_hook.install()
        from . import process

        process.catch_up()
    except Exception as error:
        import_hook.broken("this process", error)
