"""Reading the command that starts an engine, as its own parser would: options, aliases, abbreviations, variables before it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any

from .. import untrusted
from .condition import OFF, ON
from .engine_options import FILE, JSON, OPTIONS, SWITCH, Option

#: What starts an engine: `python -m MODULE`, `PROGRAM serve`, an image whose entry point is the server
_MODULES = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
_IMAGES = {"vllm/vllm-openai": "vllm"}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")


class LaunchError(Exception):
    """The command starts no engine, or cannot be split into words: one sentence for a user."""


@dataclass
class Launch:
    """What a launch command says. `options`: name as in `options.py` -> value, `on` or `off` of a switch, `name.key` of JSON;
    `not_understood` are words that no known option explains, `not_read` files that may hold further options."""

    engine: str
    variables: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    not_understood: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)


def read(words: Sequence[str]) -> Launch:
    """The launch that `words` start; one word with blanks in it is a whole command line. Raises LaunchError."""
    if len(words) == 1:
        try:
            words = shlex.split(words[0].replace("\\\n", " "))
        except ValueError as error:
            raise LaunchError(f"the launch command cannot be split into words: {error}") from error
    engine, start = _program(words)
    launch = Launch(engine, dict(word.split("=", 1) for word in words[:start] if _ASSIGNMENT.match(word)))
    _Reader(launch, words[start:]).read()
    launch.model = launch.options.get("model-path") or launch.options.get("model") or launch.model
    return launch


def _program(words: Sequence[str]) -> tuple[str, int]:
    """The engine, and where its own arguments begin."""
    for at, (word, after) in enumerate(zip(words, [*words[1:], ""])):
        if word == "-m" and after in _MODULES:
            return _MODULES[after], at + 2 + (words[at + 2 : at + 3] == ["serve"])
        if PurePath(word).name in OPTIONS and after == "serve":
            return PurePath(word).name, at + 2
        image = word.partition(":")[0]
        if any(image.endswith(name) for name in _IMAGES):
            return next(engine for name, engine in _IMAGES.items() if image.endswith(name)), at + 1
    raise LaunchError("the launch command starts no engine; known: vllm serve, sglang serve, python -m " + ", ".join(_MODULES))


class _Reader:
    """One pass over an engine's arguments."""

    def __init__(self, launch: Launch, words: Sequence[str]):
        self.launch, self.words, self.at = launch, list(words), 0
        self.known = {name: option for option in OPTIONS[launch.engine] for name in option.names}

    def read(self) -> None:
        free = True  # whether a plain word here is the model, not one more value of an option
        while self.at < len(self.words):
            word = self.words[self.at]
            self.at += 1
            if _is_option(word):
                free = self._option(word)
            elif free and self.launch.model is None:
                self.launch.model = word

    def _option(self, word: str) -> bool:
        """Reads the option `word` and its value; whether a plain word behind it cannot be its value."""
        flag, equals, value = word.partition("=")
        name, dot, key = _dashes(flag).partition(".")
        option, negated = self._named(name)
        if option is None or (dot and option.kind != JSON):
            self.launch.not_understood.append(flag)
            return bool(equals)
        if option.kind == SWITCH:
            self.launch.options[option.name] = OFF if negated or value.lower() in ("false", "0") else ON
            return True
        if not equals:
            if self.at == len(self.words):
                self.launch.not_understood.append(word)
                return True
            value = self.words[self.at]
            self.at += 1
        if option.kind == FILE:
            self.launch.not_read.append(f"{flag} {value}")
        elif option.kind == JSON and not dot:
            self._json(option, flag, value)
        else:
            self.launch.options[f"{option.name}.{key}" if dot else option.name] = value
        return True

    def _named(self, name: str) -> tuple[Option | None, bool]:
        """The option of that name and whether `--no-` stands before it; argparse lets a unique beginning stand for it."""
        if name in self.known:
            return self.known[name], False
        positive = name.replace("--no-", "--", 1)
        if positive != name and positive in self.known and self.known[positive].kind == SWITCH:
            return self.known[positive], True
        meant = {option for full, option in self.known.items() if name.startswith("--") and full.startswith(name)}
        return (meant.pop() if len(meant) == 1 else None), False

    def _json(self, option: Option, flag: str, text: str) -> None:
        try:
            found = untrusted.parsed(text)
        except ValueError:
            found = None
        if not isinstance(found, Mapping):
            self.launch.not_understood.append(f"{flag} {text}")
            return
        for key, value in found.items():
            self.launch.options[f"{option.name}.{key}"] = _text(value)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _dashes(flag: str) -> str:
    """`--attention_backend` as `--attention-backend`; keys behind a dot keep their underscores."""
    name, dot, key = flag.partition(".")
    return name.replace("_", "-") + dot + key


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
