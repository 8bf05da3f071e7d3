"""What a known bug is: a bug of published releases that no fix corrects, as data. Tools read it; no serving process does.

Each is one file, `patches/ENGINE/known/NAME.py`, which declares `BUG`. It moves to a folder of its own when it becomes a fix.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from packaging.specifiers import SpecifierSet
from packaging.version import Version

from .doctor.condition import Condition
from .fix import WRONG_OUTPUT, CodePath, Upstream


@dataclass(frozen=True, eq=False, kw_only=True)
class KnownBug:
    """One bug, one id.

    `title`, `symptom`, `symptoms`, `upstream`, `harm` and `avoid` are those of a `Fix`. `hits` says which deployments reach
    it, over the same facts. `releases` are spans by release number, oldest first: "<0.5.8" at the end says that 0.5.8 has it
    mended, "<=0.5.23" that 0.5.23 was the newest one read and has it. `code` are the places of the fault, one for each name
    that they had, as `module:Class.method`. `ran` are the releases in which `tests/known/ENGINE/NAME.py` showed it; in the
    others it was read.
    """

    id: str
    title: str
    symptom: str
    symptoms: tuple[str, ...]
    releases: tuple[str, ...]
    code: tuple[str, ...]
    upstream: Upstream
    hits: Condition
    avoid: str
    harm: str = WRONG_OUTPUT
    ran: tuple[str, ...] = ()

    @cached_property
    def engine(self) -> str:
        return self.id.partition(".")[0]

    @property
    def package(self) -> str:
        """Name of its file below patches/, e.g. sglang.known.pd_value_pointers."""
        return self.id.replace("-", "_").replace(".", ".known.", 1)

    @cached_property
    def code_paths(self) -> tuple[CodePath, ...]:
        return tuple(map(CodePath.parse, self.code))

    @property
    def avoidable(self) -> bool:
        """Whether `avoid` names a way within the release."""
        return not self.avoid.startswith("Nothing ")

    @cached_property
    def _spans(self) -> tuple[SpecifierSet, ...]:
        return tuple(map(SpecifierSet, self.releases))

    @property
    def read_to(self) -> str | None:
        """The newest release that was read, where that one has the bug; None where a release has it mended."""
        return next((bound.version for bound in self._spans[-1] if bound.operator == "<="), None)

    @property
    def fixed_in(self) -> str | None:
        """The first release without it, behind the last that has it; None: there is none yet."""
        return next((bound.version for bound in self._spans[-1] if bound.operator == "<"), None)

    def in_release(self, release: Version | None) -> bool | None:
        """Whether that release has the bug; None: it was not read, as one behind `read_to`, or a release that is not known."""
        if release is None or (self.read_to and Version(release.public) > Version(self.read_to)):
            return None
        return any(span.contains(release.public, prereleases=True) for span in self._spans)

    def affected(self, releases: Sequence[str]) -> list[str]:
        """Those of the releases that have it."""
        return [release for release in releases if self.in_release(Version(release))]

    @property
    def evidence(self) -> str:
        return f"run in {', '.join(self.ran)}, read in the others" if self.ran else "read in the engine's code, not run"
