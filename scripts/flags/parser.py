"""The options of the engine that can be imported here, by its own parser, as JSON: `python -m scripts.flags.parser ENGINE`."""

from __future__ import annotations

import argparse
import importlib
import json
import pkgutil
import sys
from contextlib import suppress
from typing import Any

from attnfix.prove import side, stubs

#: The module of the server's parser, the newest first
_CLI_ARGS = {
    "vllm": (
        "vllm.entrypoints.common.cli_args",
        "vllm.entrypoints.launchers.cli_args",
        "vllm.entrypoints.openai.cli_args",
    ),
    "sglang": ("sglang.srt.server_args",),
}
#: What parsers import, beside what proofs do
_OF_PARSERS = ("lmformatenforcer", "outlines", "outlines_core", "pybase64", "msgspec", "prometheus_fastapi_instrumentator")
_PLAIN = (str, int, float, bool, type(None))


def options(engine: str) -> list[dict[str, Any]]:
    """`names`, `takes`, `default`, `choices`, `group` of each option, as the server's parser has them. The engine is
    imported."""
    stubs.OPTIONAL = {engine: (*stubs.OPTIONAL[engine], *_OF_PARSERS)}
    stubs.install(engine)
    side._ease_engine(engine)
    found = [action for action in _parser(engine)._actions if action.option_strings]
    namespaces = _namespaces() if engine == "sglang" else {}
    return [{**_option(action, engine), "group": namespaces.get(action.dest) or _title(action)} for action in found]


def _title(action: Any) -> str:
    """Of its group in the parser."""
    return action.container.title or ""


def _namespaces() -> dict[str, str]:
    """sglang's own sorting of the fields of ServerArgs, from 0.5.20 on: field -> namespace."""
    fields = _imported("sglang.srt.arg_groups.fields")
    names = [module.name for module in pkgutil.iter_modules(fields.__path__)] if fields else []
    classes = [
        (name, kind)
        for name in names
        for kind in vars(importlib.import_module(f"{fields.__name__}.{name}")).values()
        if isinstance(kind, type) and hasattr(kind, "_NS_PATH")
    ]
    return {field: name for name, kind in classes for field in kind.__annotations__}


def _parser(engine: str) -> argparse.ArgumentParser:
    module = next(filter(None, map(_imported, _CLI_ARGS[engine])))
    if engine == "vllm":
        importlib.import_module("vllm.platforms").current_platform.device_type = "cuda"  # no GPU is found here
        made: argparse.ArgumentParser = module.make_arg_parser(module.FlexibleArgumentParser())
        return made
    parser = argparse.ArgumentParser()
    module.ServerArgs.add_cli_args(parser)
    return parser


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and name.startswith(error.name):
            return None
        raise


def _option(action: argparse.Action, engine: str) -> dict[str, Any]:
    choices = list(action.choices or ())
    plain = all(isinstance(choice, _PLAIN) for choice in choices)
    return {
        "names": list(action.option_strings),
        "takes": _takes(action, engine),
        "default": _plain(action.default),
        "choices": [str(choice) for choice in choices] if plain else [],
    }


def _takes(action: argparse.Action, engine: str) -> str | int:
    """Of what follows it: nothing (`switch`; `no` where a name negates it), `value`, `json` with keys behind dots, `optional`,
    `several`, or that many values."""
    if isinstance(action, argparse.BooleanOptionalAction):
        return "no"
    if action.nargs is None:
        return "json" if engine == "vllm" and _is_json(action) else "value"
    if isinstance(action.nargs, int):
        return action.nargs or "switch"
    return {"?": "optional"}.get(action.nargs, "several")


def _is_json(action: argparse.Action) -> bool:
    if "JSON string" in (action.help or "") or "JSON keys" in (action.help or ""):
        return True
    with suppress(Exception):  # its type refuses an empty object
        return callable(action.type) and isinstance(action.type("{}"), dict)
    return False


def _plain(value: Any) -> Any:
    """The default, None where it is no plain value."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, _PLAIN) for item in value):
        return list(value)
    return value if type(value) in _PLAIN else None


if __name__ == "__main__":
    print("\noptions " + json.dumps(options(sys.argv[1])), flush=True)
