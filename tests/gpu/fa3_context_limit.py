"""One side of the test of sglang.fa3-context-limit's kernel: `python fa3_context_limit.py WORDS`.

The proof of sglang.fa3-context-limit with sgl_kernel's FlashAttention 3 in the place of the stand-in. Behind the page tables
lie slots of the cache (WORDS "slots"), so that reading there gives wrong results, or what is no slot ("none"): then it is an
illegal memory access. Prints one JSON object; what ends the process is for whoever started it to see.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any


def main(words: str) -> None:
    from attnfix.patches.lab.gpu_memory import GpuMemory
    from attnfix.patches.lab.proof import combine, run_on
    from attnfix.patches.lab.sglang import paged
    from attnfix.patches.sglang.fa3_context_limit import proof

    run_on("cuda")
    if words == "slots":
        vars(paged)["GpuMemory"] = lambda *given, **more: GpuMemory(*given, **(more | {"words": (1, 8)}))
    real: Any = type("Real", (proof.Proof,), {"prepare": lambda self: None})()
    found = {}
    for name in ("control", "scenario"):  # the one that may end the process last
        one = combine(*getattr(real, name)(0))
        found[name] = {"error": one.error if math.isfinite(one.error) else "not finite", "bits": one.bits}
    import attnfix

    rows = [row for row in attnfix.status() if row["fix"] == "sglang.fa3-context-limit"]
    found["corrections"] = sum(row["counters"]["corrections"] for row in rows)
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
