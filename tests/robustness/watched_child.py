"""One side of proofs, as `attnfix.prove.side`, which tells more of each scenario and control: `raised`, since an exception
there is a wrong result of an engine that came up; and with the argument `trace`, `ran`, the places of the engine's functions
that were entered, and `entered`, those that a target of the fix entered itself.
"""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

from attnfix.compat.fix import Attribute
from attnfix.patches.catalogue import BY_ID
from attnfix.patches.lab.proof import NoSuchPath
from attnfix.prove import side as child


class Trace:
    """What the engine's functions enter; of the targets of a fix, what they enter themselves."""

    def __init__(self, engine: str, fix: str):
        self.engine = engine
        targets = (target for target in BY_ID[fix].targets if not isinstance(target, Attribute))
        self.targets = {str(place) for target in targets for place in target.witnesses}
        self.ran: set[str] = set()
        self.entered: set[str] = set()

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        # A module's own frame is an import's, or Triton's interpreter, which compiles a kernel anew
        if (place := self._place(frame)) is None or frame.f_code.co_name in ("<lambda>", "<module>"):
            return
        self.ran.add(place)
        above = frame.f_back  # the nearest frame of the engine: torch, functools or a stand-in may lie between
        while above is not None and (caller := self._place(above)) is None:
            above = above.f_back
        if above is not None and caller in self.targets:
            self.entered.add(place)

    def _place(self, frame: FrameType) -> str | None:
        """Of the definition that a file of the engine has; what is defined inside a function is that function's."""
        module, code = frame.f_globals.get("__name__", ""), frame.f_code
        if module.partition(".")[0] != self.engine:
            return None
        if code.co_filename == "<string>" and code.co_argcount:  # what a dataclass makes of its class
            return f"{module}:{type(frame.f_locals[code.co_varnames[0]]).__qualname__}"
        return f"{module}:{code.co_qualname.partition('.<locals>')[0]}"


def main(request: dict[str, Any], *, trace: bool) -> dict[str, Any]:
    unwatched, side, fixes = child._observed, child._side, []

    def observed(run: Any, seed: int, **how: Any) -> dict[str, Any]:
        watching = Trace(request["engine"], fixes[-1])
        sys.settrace(watching if trace else None)
        try:
            found = unwatched(run, seed, **how)
        except NoSuchPath:
            raise
        except Exception as error:
            found = {"error": None, "bits": None, "raised": f"{type(error).__name__}: {error}"}
        finally:
            sys.settrace(None)
        return {**found, "ran": sorted(watching.ran), "entered": sorted(watching.entered)}

    def one_side(fix: str, *rest: Any) -> dict[str, Any]:
        fixes.append(fix)
        return side(fix, *rest)

    child._observed, child._side = observed, one_side
    return child.main(request)


if __name__ == "__main__":
    *options, request = sys.argv[1:]
    print(
        "\nattnfix-answer " + json.dumps(child._tried(lambda: main(json.loads(request), trace="trace" in options))), flush=True
    )
