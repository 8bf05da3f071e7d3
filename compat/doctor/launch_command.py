"""Reading the command that starts an engine, as its own parser would: options, aliases, abbreviations, variables before it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import untrusted
from .condition import OFF, ON
from .engine_options import FILE, JSON, OPTIONS, SWITCH, Option
from .engine_start import Image, LaunchError, find, parsed_yaml

__all__ = ["Launch", "LaunchError", "read"]

_CONFIG_LIMIT = 1 << 20  # bytes; a --config file has some lines


@dataclass
class Launch:
    """What a launch command says. `options`: name as in `options.py` -> value, `on` or `off` of a switch, `name.key` of JSON;
    `not_understood` are words that no known option explains, `not_read` files that may hold further options. `image`: the
    container image that it runs in."""

    engine: str
    variables: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    not_understood: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    image: Image | None = None


def read(words: Sequence[str], engine: str | None = None) -> Launch:
    """The launch that `words` start; one word with blanks in it is a whole command line, or a container in YAML. `engine` is
    whose arguments the words are where they are arguments alone. Reads the file of --config. Raises LaunchError."""
    start = find(words, engine)
    launch = Launch(start.engine, start.variables, image=start.image)
    _Reader(launch, start.arguments).read()
    launch.model = launch.options.get("model-path") or launch.options.get("model") or launch.model
    return launch


class _Reader:
    """One pass over an engine's arguments."""

    def __init__(self, launch: Launch, words: Sequence[str], within: str | None = None):
        self.launch, self.words, self.at = launch, list(words), 0
        self.files: list[Launch] = []
        self.within = within  # the file that holds the words; it names no other
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
        for found in self.files:
            self._add(found)

    def _add(self, found: Launch) -> None:
        """Options of a file, but those that the line gives, too: it wins, also over each key of JSON."""
        model = {"model", "model-path"} if self.launch.model else set()
        given = {name.partition(".")[0] for name in self.launch.options} | model
        options = {name: value for name, value in found.options.items() if name.partition(".")[0] not in given}
        self.launch.options.update(options)
        self.launch.not_understood += found.not_understood
        self.launch.not_read += found.not_read

    def _file(self, flag: str, path: str) -> None:
        try:
            words = list(_arguments(parsed_yaml(untrusted.read(path, _CONFIG_LIMIT, follow=True))))
        except (FileNotFoundError, NotADirectoryError):
            self.launch.not_read.append(f"{flag} {path} (not on this machine)")
        except (OSError, TypeError, ValueError) as error:
            self.launch.not_read.append(f"{flag} {path} ({error})")
        else:
            found = Launch(self.launch.engine)
            _Reader(found, words, within=path).read()
            self.files.append(found)

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
            self._file(flag, value) if self.within is None else self.launch.not_read.append(f"{flag} {value} of {self.within}")
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


def _arguments(found: list[Any]) -> Iterator[str]:
    """The words that a --config file stands for, as both engines make them. Raises ValueError for a file of another form."""
    options = (found or [None])[0] or {}
    if not isinstance(options, Mapping):
        raise ValueError("it holds no options")
    for name, value in options.items():
        if value is False or value == []:
            continue
        yield f"--{name}"
        if isinstance(value, list):
            yield from map(str, value)
        elif value is not True:
            yield json.dumps(value) if isinstance(value, Mapping) else str(value)


def _is_option(word: str) -> bool:
    return word.startswith("-") and not re.fullmatch(r"-\d+(\.\d+)?", word)


def _dashes(flag: str) -> str:
    """`--attention_backend` as `--attention-backend`; keys behind a dot keep their underscores."""
    name, dot, key = flag.partition(".")
    return name.replace("_", "-") + dot + key


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
