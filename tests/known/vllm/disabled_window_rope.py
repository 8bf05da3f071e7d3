"""vllm.disabled-window-rope: which layers of EXAONE 4 rotate by position, with --disable-sliding-window.

python tests/known/vllm/disabled_window_rope.py RELEASE      exit code 1: the bug is there; 0.12.0 and later

A correction asks layer_types, and not the window, which layers rotate.
"""

import sys
from importlib import import_module

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs

KINDS = ["sliding_attention"] * 3 + ["full_attention"]
LENGTH, WIDTH = 512, (8 + 2 * 2) * 64


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    side._ease_engine("vllm")
    import torch

    from attnfix.patches.lab.vllm.construction import DENSE, Worker
    from attnfix.patches.lab.vllm.layers import handed_over

    model = {
        **DENSE, "architectures": ["Exaone4ForCausalLM"], "model_type": "exaone4", "layer_types": KINDS, "rope_theta": 1e6,
        "sliding_window": LENGTH, "sliding_window_pattern": 4,
    }  # fmt: skip
    given = dict(backend="flash_attn.FlashAttentionBackend", context=LENGTH, max_tokens=LENGTH)
    rotating = []
    with Worker(model, **given, model_config={"disable_sliding_window": True}) as worker:
        config, cache = worker.config.model_config.hf_config, worker.config.cache_config
        made = import_module("vllm.model_executor.models.exaone4").Exaone4DecoderLayer
        for at in range(len(KINDS)):
            rows = torch.ones(2, WIDTH)
            query, *_ = handed_over(made(config, cache, None, f"model.layers.{at}").self_attn, rows, torch.tensor([0, 9]), rows)
            rotating.append(not torch.equal(query[0], query[1]))
    wanted = [kind == "sliding_attention" for kind in KINDS]
    print(f"vllm {release}: {sum(rotating)} of {len(KINDS)} layers rotate, {sum(wanted)} should")
    return 1 if rotating != wanted else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
