"""Where a command starts an engine: behind shells, container programs and images, as people paste them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import dropwhile
from pathlib import PurePath
from typing import Any, NamedTuple

from ..engines import ENGINES

#: Programs that start an engine, beside `PROGRAM serve` and images: `python -m MODULE`
_MODULES = {
    "sglang.launch_server": "sglang",
    "vllm.entrypoints.openai.api_server": "vllm",
    "vllm.entrypoints.cli.main": "vllm",
}
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh"})
_ASSIGNMENT = re.compile(r"(?:-e|--env=)?([A-Za-z_]\w*)=(.*)", re.S)
_SUFFIXES = r"(?:-(?:rocm|xpu|cpu|hpu|cuda|cu\d+|arm64|aarch64|runtime|base|dev|nightly|custom|attnfix))*"
#: Any registry with its port, folders, a name that says which engine it is, tag and digest
_IMAGE = re.compile(
    rf"(?P<home>(?:[\w.-]+(?::\d+)?/)*)(?P<name>(?P<engine>vllm|sglang)(?P<server>-openai)?{_SUFFIXES})"
    r"(?::(?P<tag>[\w.-]+))?(?P<digest>@sha256:[0-9a-f]+)?"
)
_HOMES = ("vllm/", "lmsysorg/", "rocm/")
_RELEASE = re.compile(r"(?<![a-uw-z\d.])v?(\d+\.\d+\.\d+(?:\.?(?:post|rc|dev)\d+)?)(?![\d.])")
#: YAML of Kubernetes, compose or values of Helm, behind comments: a list of words, a container, or what holds some
_YAML = re.compile(r"(?:\s|#.*\n)*(?:\[|- |---|[A-Za-z][\w.-]*[ \t]*:(?:\s|$))")
#: A whole command in one word
_COMMAND_LINE = re.compile(r"\b(?:vllm|sglang)\s+serve\s|\s-m\s+(?:vllm|sglang)\.")
_COMMAND = ("image", "entrypoint", "command", "args")


class LaunchError(Exception):
    """The command starts no engine, or cannot be split into words: one sentence for a user."""


class Image(NamedTuple):
    """`release`: of the engine, as the tag says it; None where it does not."""

    name: str
    release: str | None


@dataclass
class Start:
    """`arguments` are the engine's own; `variables` are set by the command for it."""

    engine: str = ""
    arguments: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    image: Image | None = None


def find(words: Sequence[str], engine: str | None = None) -> Start:
    """The start of an engine in a command; one word with blanks in it is a script, or a container in YAML. `engine` is whose
    arguments the words are where they are arguments alone. Raises LaunchError."""
    start = Start()
    commands = _commands(words[0]) if len(words) == 1 else [list(words)]
    if any(_starts(command, start) for command in commands):
        return start
    if engine and (arguments := _arguments(words, commands)):
        return Start(engine, arguments, start.variables)
    known = "vllm serve, sglang serve, python -m " + ", ".join(_MODULES)
    raise LaunchError(
        f"the launch command starts no engine; known: {known}, and, with --engine, arguments alone or a container of any image"
    )


def _arguments(words: Sequence[str], commands: Iterable[list[str]]) -> list[str]:
    """The options of a server where words are options alone, or of the one container in YAML that has options."""
    if len(words) == 1 and _YAML.match(words[0]):
        commands = [list(dropwhile(lambda word: not word.startswith("-"), command)) for command in commands]
    found = [command for command in commands if command and command[0].startswith("-")]
    return found[0] if len(found) == 1 else []


def _starts(words: list[str], start: Start) -> bool:
    """Whether the command starts an engine; what it says is added to `start`."""
    entry_point: list[str] = []
    for at, (word, after) in enumerate(zip(words, [*words[1:], ""])):
        rest = words[at + 1 :]
        if word == "-m" and after in _MODULES:
            start.engine, start.arguments = _MODULES[after], rest[1 + (rest[1:2] == ["serve"]) :]
            return True
        if (program := PurePath(word).name) in ENGINES and after == "serve":
            start.engine, start.arguments = program, rest[1:]
            return True
        if word.startswith("--entrypoint"):
            entry_point = [word.partition("=")[2] or after]
        elif program in _SHELLS and entry_point != [word] and (script := _script(rest)):
            if any(_starts(command, start) for command in _commands(script)):
                return True
        elif _COMMAND_LINE.search(word) and any(_starts(command, start) for command in _commands(word)):
            return True
        elif found := _image(word):
            start.image = Image(word, _release(found["tag"]))
            return _starts_in_image(found, [*entry_point, *rest], start)
        elif assigned := _ASSIGNMENT.fullmatch(word):
            start.variables[assigned[1]] = assigned[2]
    return False


def _starts_in_image(found: re.Match[str], words: list[str], start: Start) -> bool:
    """An image runs the program behind it, or gives arguments to a server of its own."""
    if _starts(words, start):
        return True
    if not found["server"] and words and not words[0].startswith("-"):
        return False
    start.engine, start.arguments = found["engine"], words
    return True


def _image(word: str) -> re.Match[str] | None:
    found = _IMAGE.fullmatch(word)
    named = found and (found["tag"] or found["digest"] or found["home"].endswith(_HOMES))
    return found if named else None


def _release(tag: str | None) -> str | None:
    found = _RELEASE.search(tag or "")
    return found[1] if found else None


def _script(words: list[str]) -> str | None:
    """The script of a shell's arguments, `-c` or among other letters (`-lc`)."""
    flags = (at for at, word in enumerate(words[:-1]) if re.fullmatch(r"-[a-z]*c[a-z]*", word))
    at = next(flags, None)
    return None if at is None else next((word for word in words[at + 1 :] if not word.startswith("-")), None)


def _commands(text: str) -> list[list[str]]:
    """The simple commands of a script, without redirections, or the words of a container. Raises LaunchError."""
    try:
        if _YAML.match(text):
            return [words for part in parsed_yaml(text) for words in _of_containers(part)]
        return [command for command in _of_script(text) if command]
    except (TypeError, ValueError) as error:
        raise LaunchError(f"the launch command cannot be split into words: {error}") from error


def _of_script(text: str) -> Iterator[list[str]]:
    text = re.sub(r"(?m)^\s*#.*$", "", text.replace("\\\n", " "))
    text = re.sub(r"\$\([^()]*\)", "$(…)", text)  # what a command prints is not known
    text = re.sub(r"\n\s*(?=-)", " ", text)  # a line of options goes on with the command before it
    text = re.sub(r"(?<=\s)\d(?=[<>])", "", text)  # of a redirection, 2>
    lexer = shlex.shlex(text, posix=True, punctuation_chars=";&|<>\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    command: list[str] = []
    tokens = iter(lexer)
    for token in tokens:
        if set(token) <= set(";&|\n") and token:
            yield command
            command = []
        elif set(token) <= set("<>&|") and token:
            next(tokens, None)
        else:
            command.append(token)
    yield command


def parsed_yaml(text: str | bytes) -> list[Any]:
    """The documents in it. Raises ValueError for text that is no YAML, and where no parser of it is installed (engines bring
    one)."""
    try:
        import yaml
    except ImportError:
        raise ValueError("it is YAML, and PyYAML is not installed here") from None
    try:
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("it has aliases")  # a few lines of them stand for gigabytes
        return list(yaml.safe_load_all(text))
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(f"it is no YAML: {' '.join(str(error).split())[:200]}") from error


def _of_containers(found: Any) -> Iterator[list[str]]:
    """The words of each container in it: its variables, its image, its command. Raises ValueError."""
    if isinstance(found, Mapping) and isinstance(image := found.get("image"), Mapping):  # values of Helm
        named = ":".join(str(image[key]) for key in ("repository", "tag") if image.get(key))
        found = {**found, **image, "image": named}
    if isinstance(found, Mapping) and any(key in found for key in _COMMAND):
        variables = [word for key in ("env", "environment") for word in _assignments(found.get(key) or ())]
        yield variables + [word for key in _COMMAND for word in _words(found.get(key) or ())]
    elif isinstance(found, Mapping):
        for part in found.values():
            if isinstance(part, Mapping) or (isinstance(part, list) and any(isinstance(item, Mapping) for item in part)):
                yield from _of_containers(part)
    elif isinstance(found, list) and any(isinstance(item, Mapping) for item in found):
        for part in found:
            yield from _of_containers(part)
    else:
        yield _words(found)


def _assignments(found: Any) -> Iterator[str]:
    if isinstance(found, Mapping):
        yield from (f"{name}={value}" for name, value in found.items() if value is not None)
        return
    for item in found:
        if not isinstance(item, Mapping):
            yield str(item)
        elif "value" in item:
            yield f"{item.get('name')}={item['value']}"


def _words(found: Any) -> list[str]:
    if isinstance(found, str):
        return shlex.split(found)
    if isinstance(found, Sequence) and not any(isinstance(word, (Mapping, list)) for word in found):
        return [str(word) for word in found]
    raise ValueError("a command is a text or a list of words")
