"""vllm.mrope-yarn-range: which frequencies the rotary table of a model with M-RoPE and YaRN has, against those of YaRN.

python tests/known/vllm/mrope_yarn_range.py RELEASE      exit code 1: the bug is there; 0.11.0 and later

A correction finds the range of frequencies that YaRN keeps by the original length, and leaves the table as long as it is.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

WIDTH, BASE, FACTOR, ORIGINAL = 128, 1e6, 4.0, 32768
SETTINGS = {"rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL}
SECTIONS = {"mrope_section": [16, 24, 24]}


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    side._ease_engine("vllm")
    from attnfix.patches.lab.vllm import rotary
    from attnfix.patches.lab.vllm.construction import DENSE, Worker

    wanted = rotary.yarn(WIDTH, BASE, FACTOR, 32, 1, ORIGINAL, True)
    with Worker(DENSE, backend="flash_attn.FlashAttentionBackend"):
        try:
            plain, sections = (rotary.made(WIDTH, ORIGINAL, BASE, **SETTINGS, **more) for more in ({}, SECTIONS))
        except AttributeError as error:
            print(f"vllm {release}: no table is made, {error}")
            return 0
    others = [int((made._compute_inv_freq(FACTOR).double() / wanted - 1).abs().gt(1e-3).sum()) for made in (plain, sections)]
    print(f"vllm {release}: {others[1]} of {len(wanted)} frequencies are not YaRN's with M-RoPE, {others[0]} without")
    return 1 if others[1] else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
