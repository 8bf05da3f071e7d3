"""sglang.laguna-yarn-scale: by how much the rotary table of Laguna scales queries and keys, against its config.json.

python tests/known/sglang/laguna_yarn_scale.py RELEASE      exit code 1: the bug is there; 0.5.12 and later

A correction divides the checkpoint's factor by the one that the engine multiplies it with.
"""

import sys
from importlib import import_module

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

#: Of Laguna S 2.1
FACTOR, WANTED, ORIGINAL = 128.0, 1.4852, 64
ROPE = {"rope_type": "yarn", "factor": FACTOR, "attention_factor": WANTED, "original_max_position_embeddings": ORIGINAL}
KINDS = {"full_attention": ROPE, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("sglang", release)))
    stubs.install("sglang")
    side._ease_engine("sglang")
    import torch

    from attnfix.patches.lab.sglang import construction

    construction.publish(construction.server_args("--attention-backend", "triton"))
    rope = import_module("sglang.srt.configs.laguna").LagunaConfig(num_hidden_layers=4, rope_parameters=KINDS).full_rope_scaling
    import_module("sglang.srt.layers.rotary_embedding.base")._is_cpu = True
    made = import_module("sglang.srt.layers.rotary_embedding.factory").get_rope
    scale = made(64, 64, int(ORIGINAL * FACTOR), 500000, True, rope, torch.bfloat16).mscale
    print(f"sglang {release}: queries and keys are scaled by {scale:.3f}, config.json says {WANTED:.3f}")
    return 1 if abs(scale - WANTED) > 1e-3 else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
