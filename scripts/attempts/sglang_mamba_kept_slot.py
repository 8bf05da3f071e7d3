"""Attempts to show that sglang writes over the state that it is about to cache: docs/upstream/sglang-mamba-kept-slot.md.

`PYTHONPATH=SITE ATTNFIX=0 TRITON_INTERPRET=1 python -m scripts.attempts.sglang_mamba_kept_slot` plays, with the
engine's own request, batch, pool, radix cache and result processor, one request over two track boundaries, with a prefill right
before or after the step of the first one. It prints the length of the prefix that a follow-up gets, and whether the cached
state is of these tokens.
"""

from __future__ import annotations

import itertools
import random

from attnfix.prove import stubs
from attnfix.prove.side import _ease_engine


def main() -> None:
    stubs.install("sglang")
    _ease_engine("sglang")
    from attnfix.patches.lab.sglang import tracked_states
    from attnfix.patches.sglang.mamba_track_boundary.proof import Proof

    Proof()  # imports the engine
    stubs.freeze()
    served, interval = tracked_states.serve(), tracked_states.INTERVAL
    for end, order in itertools.product((0, 2), itertools.product((False, True), repeat=3)):
        draw, server = random.Random(1), tracked_states.Server(served)
        text = lambda tokens: [draw.randrange(64) for _ in range(tokens)]  # noqa: B023, E731
        server.arrive(text(interval - 2), text(2 + interval + end))
        said = next(iter(server.texts.values()))
        server.step()
        for others in order:
            if others:
                server.arrive(text(3), text(1))
            server.step(prefill=others)
        while server.step():
            pass
        server.arrive(said + text(3), text(2))
        while server.step():
            pass
        turns = " ".join("prefill" if others else "decode" for others in order)
        print(f"ends {end} after the second boundary; {turns}: {server.continued}", flush=True)


if __name__ == "__main__":
    main()
