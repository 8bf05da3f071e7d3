"""Reading the command that starts an engine, as its own parser would: options, aliases, abbreviations, variables before it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .. import untrusted
from .condition import OFF, ON
from .engine_options import JSON, NEGATED, OPTIONAL, RENAMED, SEVERAL, SWITCH, Option, by_name
from .engine_start import Image, LaunchError, Start, find, parsed_yaml

__all__ = ["Launch", "LaunchError", "Start", "find", "read", "read_start"]

_CONFIG_LIMIT = 1 << 20  # bytes; a --config file has some lines


@dataclass
class Launch:
    """What a launch command says. `options`: name as in `engine_options` -> value, `on` or `off` of a switch, `name.key` of
    JSON; `not_understood` are words that the engine's parser does not take, `not_read` files that may hold further options.
    `image`: the container image that it runs in; `typed`: whether the options were typed, not told by a server that settled
    them."""

    engine: str
    variables: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    not_understood: list[str] = field(default_factory=list)
    not_read: list[str] = field(default_factory=list)
    image: Image | None = None
    typed: bool = True


def read(words: Sequence[str], engine: str | None = None, release: str | None = None) -> Launch:
    """The launch that `words` start; one word with blanks in it is a whole command line, or a container in YAML. `engine` is
    whose arguments the words are where they are arguments alone. `release`: whose parser reads them; None: all of them
    together. Reads the file of --config. Raises LaunchError."""
    return read_start(find(words, engine), release)


def read_start(start: Start, release: str | None = None) -> Launch:
    """The launch at `start`, as the parser of `release` reads its arguments; None: all parsers together."""
    launch = Launch(start.engine, start.variables, image=start.image)
    _Reader(launch, start.arguments, by_name(launch.engine, release)).read()
    launch.model = launch.options.get("model-path") or launch.options.get("model") or launch.model
    return launch


class _Reader:
    """One pass over an engine's arguments."""

    def __init__(self, launch: Launch, words: Sequence[str], known: Mapping[str, Option], within: str | None = None):
        self.launch, self.words, self.known, self.at = launch, _levels(words, known), known, 0
        self.files: list[Launch] = []
        self.within = within  # the file that holds the words; it names no other

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
            _Reader(found, words, self.known, within=path).read()
            self.files.append(found)

    def _option(self, word: str) -> bool:
        """Reads the option `word` and its values; whether a plain word behind it cannot be one of them."""
        flag, equals, value = word.partition("=")
        name, dot, key = _dashes(flag).partition(".")
        option, negated = self._named(name)
        if option is None or (dot and option.takes != JSON):
            self.launch.not_understood.append(flag)
            return bool(equals)
        if option.takes in (SWITCH, NEGATED):
            self._set(option.name, OFF if negated or value.lower() in ("false", "0") else ON)
            return True
        values = [value] if equals else self._values(option)
        if not values and option.takes not in (OPTIONAL, SEVERAL):
            self.launch.not_understood.append(word)
        elif option.name == "config" and self.within is not None:
            self.launch.not_read.append(f"{flag} {values[0]} of {self.within}")
        elif option.name == "config":
            self._file(flag, values[0])
        elif option.takes == JSON and not dot:
            self._json(option, flag, values[0])
        else:
            self._set(f"{option.name}.{key.removesuffix('+')}" if dot else option.name, " ".join(values) if values else ON)
        return True

    def _values(self, option: Option) -> list[str]:
        """The words behind an option that are its values."""
        several = option.takes == SEVERAL
        most = len(self.words) if several else int(option.takes) if option.takes.isdigit() else 1
        first = self.at
        while self.at < len(self.words) and self.at < first + most and not _is_option(self.words[self.at]):
            self.at += 1
        return self.words[first : self.at]

    def _set(self, name: str, value: str) -> None:
        self.launch.options[RENAMED[self.launch.engine].get(name, name)] = value

    def _named(self, name: str) -> tuple[Option | None, bool]:
        """The option of that name and whether it negates it; argparse lets a unique beginning stand for a long name."""
        if name not in self.known:
            meant = [full for full in self.known if name.startswith("--") and full.startswith(name)]
            found = {self.known[full].name for full in meant}
            if len(found) != 1 or len({full.startswith("--no-") for full in meant}) != 1:
                return None, False
            name = meant[0]
        option = self.known[name]
        return option, option.takes == NEGATED and name.startswith("--no-")

    def _json(self, option: Option, flag: str, text: str) -> None:
        try:
            found = untrusted.parsed(text) if text.lstrip().startswith(("{", "[")) else text
        except ValueError:
            self.launch.not_understood.append(f"{flag} {text}")
            return
        if not isinstance(found, Mapping):
            self._set(option.name, text)
            return
        for key, value in found.items():
            self._set(f"{option.name}.{key}", _text(value))


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
    return word.startswith("-") and " " not in word.partition("=")[0] and not re.fullmatch(r"-(\d+(\.\d+)?)?", word)


def _dashes(flag: str) -> str:
    """`--attention_backend` as `--attention-backend`; keys behind a dot keep their underscores."""
    name, dot, key = flag.partition(".")
    return name.replace("_", "-") + dot + key


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _levels(words: Sequence[str], known: Mapping[str, Option]) -> list[str]:
    """vLLM takes -O3, -O=3 and -O 3 for --optimization-level 3, and before it had that, for a level of -O."""
    if "-O" not in known and "--optimization-level" not in known:
        return list(words)
    name = "--optimization-level" if "--optimization-level" in known else "-O"
    found: list[str] = []
    for word in words:
        short = re.fullmatch(r"-O(?:=?([^.=].*))?", word)
        found += [name, *filter(None, short.groups())] if short else [word]
    return found
