"""A stand-in for an engine's child of tests/gpu/serving: `python serving_child.py vllm|sglang`, without an engine.

Its model is a hash of the whole prompt, so that a right answer is known. FAULT in the environment names faults: `stock` moves
answers where attnfix is off, `patched` where it is on; `dies` ends at the first answer where attnfix is off; `slow` is slower
where attnfix is on; `odd` gives other tokens there every third round.
"""

from __future__ import annotations

import os
import random
import runpy
import sys
from pathlib import Path
from typing import Any

real = runpy.run_path(str(Path(__file__).parents[1] / "gpu/serving/child.py"), run_name="child")
PATCHED = os.environ.get("ATTNFIX") != "0"
FAULTS = os.environ.get("FAULT", "").split()


class StandIn(real["Child"]):
    engine = sys.argv[1]

    def __init__(self) -> None:
        self.seen: set[tuple[int, ...]] = set()
        self.rounds = 0

    def load(self, settings: dict[str, Any]) -> None:
        print("noise of the engine", settings)

    def machine(self) -> dict[str, Any]:
        return {"engine": self.engine, "release": "0.25.1", "gpu": "NVIDIA H100", "torch": "2"}

    def emptied(self) -> bool:
        self.seen.clear()
        return True

    def generate(self, prompts: list, new_tokens: Any, listed: int | None = None, together: bool = False) -> tuple[list, float]:
        found, self.rounds = [], self.rounds + 1
        for prompt in prompts:
            half = tuple(prompt[: len(prompt) // 2])
            wrong = ("patched" if PATCHED else "stock") in FAULTS and half in self.seen
            if "dies" in FAULTS and not PATCHED and half in self.seen:
                raise ValueError("an engine's own error")
            odd = "odd" in FAULTS and PATCHED and self.rounds % 3 == 0
            draw = random.Random(str((prompt, odd)))
            logprobs = {str(token): -token - draw.random() - wrong for token in range(20)}
            found.append(
                {
                    "tokens": [draw.randrange(9) for _ in range(4)],
                    "logprobs": [logprobs],
                    "cached": len(half) * (half in self.seen),
                }
            )
            self.seen.add(tuple(prompt))
        return found, 1.0 + 0.001 * (self.rounds % 7) + 0.1 * ("slow" in FAULTS and PATCHED)


if __name__ == "__main__":
    real["serve"](StandIn())
