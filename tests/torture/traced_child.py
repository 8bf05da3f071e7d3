"""One side of a proof, as `attnfix.prove.child`, which also tells what it ran: `ran`, the places of the engine's functions that
the scenario and the control entered."""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

from attnfix.prove import child


def main(request: dict[str, Any]) -> dict[str, Any]:
    engine, untraced = request["engine"], child._observed

    def observed(run: Any, seed: int) -> dict[str, Any]:
        ran: set[str] = set()

        def entered(frame: FrameType, event: str, _: Any) -> None:
            module = frame.f_globals.get("__name__", "")
            if event == "call" and module.partition(".")[0] == engine:
                ran.add(f"{module}:{frame.f_code.co_qualname}")

        sys.setprofile(entered)
        try:
            return {**untraced(run, seed), "ran": sorted(ran)}
        finally:
            sys.setprofile(None)

    child._observed = observed
    return child.main(request)


if __name__ == "__main__":
    print("\nattnfix-answer " + json.dumps(child._tried(main, json.loads(sys.argv[1]))), flush=True)
