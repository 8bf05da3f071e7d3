"""One side of a proof, as `attnfix.prove.child`, which tells more of the scenario and the control: `raised`, since an exception
there is a wrong result of an engine that came up; and with the argument `trace`, `ran`, the places of the engine's functions
that were entered.
"""

from __future__ import annotations

import json
import sys
from types import FrameType
from typing import Any

from attnfix.patches.scenario import NoSuchPath
from attnfix.prove import child


def main(request: dict[str, Any], *, trace: bool) -> dict[str, Any]:
    engine, unwatched = request["engine"], child._observed

    def observed(run: Any, seed: int) -> dict[str, Any]:
        ran: set[str] = set()

        def entered(frame: FrameType, event: str, _: Any) -> None:
            module = frame.f_globals.get("__name__", "")
            if module.partition(".")[0] == engine:
                ran.add(f"{module}:{frame.f_code.co_qualname}")

        sys.settrace(entered if trace else None)
        try:
            found = unwatched(run, seed)
        except NoSuchPath:
            raise
        except Exception as error:
            found = {"error": None, "bits": None, "raised": f"{type(error).__name__}: {error}"}
        finally:
            sys.settrace(None)
        return {**found, "ran": sorted(ran)}

    child._observed = observed
    return child.main(request)


if __name__ == "__main__":
    *options, request = sys.argv[1:]
    print(
        "\nattnfix-answer " + json.dumps(child._tried(lambda: main(json.loads(request), trace="trace" in options))), flush=True
    )
