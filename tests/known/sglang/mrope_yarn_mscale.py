"""sglang.mrope-yarn-mscale: whether a rotary table is made for M-RoPE with YaRN whose settings have `mscale`.

python tests/known/sglang/mrope_yarn_mscale.py RELEASE      exit code 1: the bug is there; 0.5.10 and later

A correction lets the class of M-RoPE take both settings, as the class without it does.
"""

import sys
from importlib import import_module

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

ORIGINAL, FACTOR = 64, 4.0
ROPE = {
    "rope_type": "yarn", "factor": FACTOR, "original_max_position_embeddings": ORIGINAL, "mscale": 1.0, "mscale_all_dim": 1.0,
    "mrope_section": [8, 12, 12],
}  # fmt: skip


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    side._ease_engine("sglang")
    import torch

    from attnfix.patches.lab.sglang import construction

    construction.publish(construction.server_args("--attention-backend", "triton"))
    import_module("sglang.srt.layers.rotary_embedding.base")._is_cpu = True
    made = import_module("sglang.srt.layers.rotary_embedding.factory").get_rope
    try:
        made(64, 64, int(ORIGINAL * FACTOR), 1000000, True, ROPE, torch.bfloat16)
    except TypeError as error:
        print(f"sglang {release}: no table is made, {error}")
        return 1
    print(f"sglang {release}: a table is made")
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
