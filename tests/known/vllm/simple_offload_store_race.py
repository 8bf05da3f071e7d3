"""vllm.simple-offload-store-race: does the copy of blocks to the CPU wait for the step that computes them?

python tests/known/vllm/simple_offload_store_race.py RELEASE      exit code 1: the bug is there

A correction makes the store stream wait for an event of the current stream, and the copy read its source in stream order.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    from attnfix.patches.lab.vllm import offload

    wrong = [
        race
        for race in offload.recorded(offload.SimpleOffload).races
        if race.kind == "read after write" and race.memory == "KV on the GPU"
    ]
    print(f"vllm {release}: {len(wrong)} races", *wrong[:1], sep=", ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
