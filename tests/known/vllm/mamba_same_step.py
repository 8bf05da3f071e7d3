"""vllm.mamba-same-step: where a prompt begins that comes in one step with another of the same prefix (hybrid models).

python tests/known/vllm/mamba_same_step.py RELEASE      exit code 1: the bug is there

A correction has to keep the hashes of state blocks that a step is to fill, and to put a request whose hit ends with one of
them off to the next step, as 0.17.0 does.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import stubs

TOKENS, TOGETHER = 600, 3


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    from attnfix.patches.lab.vllm import kernels
    from attnfix.patches.lab.vllm.scheduling import NEMOTRON_H, Engine

    kernels.stand_in()
    with Engine(NEMOTRON_H, caching=True, max_tokens=4 * TOKENS) as engine:
        for last in range(TOGETHER):
            engine.add([*range(TOKENS), last], output=2)
        begun = [new.num_computed_tokens for new in engine.schedule().scheduled_new_reqs]
    wrong = sum(computed > 0 for computed in begun)
    print(f"vllm {release}: {wrong} of {TOGETHER} prompts begin behind states that the same step computes: {begun}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
