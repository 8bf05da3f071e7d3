"""What tests need of a Markdown page: its links, anchors, code, and the commands in it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

_FENCE = re.compile(r"^( *)```([^\n]*)\n(.*?)^\1```$", re.S | re.M)
_INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_LINK = re.compile(r"\[(?:[^][]|\[[^][]*\])*\]\(([^()\s]+)\)")
_SEPARATORS = ("|", "||", "&", "&&", ";", ">", ">>", "<", "(", ")")


@dataclass(frozen=True)
class Page:
    """A page, or what would be `written` there."""

    path: Path
    written: str | None = None

    @cached_property
    def text(self) -> str:
        return self.path.read_text() if self.written is None else self.written

    @cached_property
    def blocks(self) -> list[tuple[str, str]]:
        """(language, code) of each fenced block."""
        return [(language.strip(), code) for _, language, code in _FENCE.findall(self.text)]

    @cached_property
    def prose(self) -> str:
        return _FENCE.sub("", self.text)

    @property
    def inline(self) -> list[str]:
        """Code in the running text; a line break in it is a space."""
        return [" ".join(code.split()) for code in _INLINE.findall(self.prose)]

    @property
    def links(self) -> list[str]:
        return _LINK.findall(_INLINE.sub("code", self.prose))

    @cached_property
    def anchors(self) -> set[str]:
        """Of the headings, as GitHub makes them."""
        found: dict[str, int] = {}
        for heading in re.findall(r"^#+ +(.+?) *#*$", self.prose, re.M):
            shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
            slug = re.sub(r"[^\w\- ]", "", shown.lower()).replace(" ", "-")
            found[f"{slug}-{found[slug]}" if slug in found else slug] = found.get(slug, 0) + 1
        return set(found)

    def blocks_in(self, *languages: str) -> list[str]:
        return [code for language, code in self.blocks if language in languages]

    def commands(self) -> Iterator[list[str]]:
        """Arguments of every `attnfix …` that a block of shell commands calls, and of those in the running text."""
        for block in self.blocks_in("sh", ""):
            for line in block.replace("\\\n", " ").splitlines():
                if re.search(r"\battnfix\b", line):
                    yield from arguments_in(line)
        for code in self.inline:
            if re.match(r"attnfix \w", code):
                yield shlex.split(code)[1:]


def arguments_in(line: str) -> Iterator[list[str]]:
    """Arguments of each call of attnfix in a shell line: by name, or as `python FOLDER/attnfix`."""
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # not a shell line: a drawing, a log line
        return
    while words:
        end = next((at for at, word in enumerate(words) if word in _SEPARATORS), len(words))
        yield from call(words[:end])
        words = words[end + 1 :]


def call(words: list[str]) -> Iterator[list[str]]:
    """Arguments of attnfix in one simple command, if it is called there at all; and of the one behind `attnfix run --`."""
    for at, word in enumerate(words):
        if word in ("install", "uninstall", "download", "show"):
            return
        after_python = at > 0 and re.fullmatch(r"(.*/)?python[\d.]*", words[at - 1])
        if word == "attnfix" or (after_python and word.endswith("/attnfix")):
            yield words[at + 1 :]
            yield from call(words[at + 1 :])
            return
