"""Takes out of a bundle what its reader need not know: absolute paths, and source lines of files that are not shown."""

from __future__ import annotations

import os
import re
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ELSEWHERE = "<elsewhere>"
_QUOTED = re.compile(r"(?P<quote>['\"])/[^'\"\n]*(?P=quote)")
_BARE = re.compile(r"(?<![\w<>/.:~-])/[^\s'\",;()\[\]{}]+")
#: A frame of a traceback in a file that is not shown: its source line is not, either
_FRAME = re.compile(rf'(  File ["\']?{ELSEWHERE}["\']?, line \d+, in \S+\n)(?:    .*\n?)+')


class Scrub:
    """Callable on any JSON value: the same value, with paths of this environment relative to it and all others gone."""

    def __init__(self, engines: Mapping[str, Path]):
        """engines: package folder of each."""
        folders = {str(root): f"<site>/{name}" for name, root in engines.items()}
        folders |= {sysconfig.get_path(name): "<site>" for name in ("purelib", "platlib")}
        folders |= {sysconfig.get_path("stdlib"): "<python>"}
        folders |= {str(Path(__file__).parents[1]): "<site>/attnfix"}
        pairs = {(os.path.realpath(folder), said) for folder, said in folders.items()} | set(folders.items())
        # The longest first: site-packages lies in the standard library's folder
        self._folders = sorted(pairs, key=lambda pair: len(pair[0]), reverse=True)
        self._homes = {str(Path.home()), os.path.expanduser(f"~{os.getuid()}")} - {"/", "~"}

    def __call__(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._text(value)
        if isinstance(value, Mapping):
            return {self._text(key): self(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self(each) for each in value]
        return value

    def _text(self, text: str) -> str:
        for folder, said in self._folders:
            text = re.sub(re.escape(folder) + r"(?![\w.-])", said, text)
        for home in self._homes:  # a home folder may hold a blank, which ends a path for the patterns below
            text = re.sub(re.escape(home) + r"(?:/[^\s'\",;()\[\]{}]*)?(?=\W|$)", ELSEWHERE, text)
        text = _QUOTED.sub(lambda found: found["quote"] + ELSEWHERE + found["quote"], text)
        return _FRAME.sub(r"\1", _BARE.sub(ELSEWHERE, text))
