"""vllm.mamba-cross-layers: which layers with a state have memory of their own, where a connector wants layers in one block.

python tests/known/vllm/mamba_cross_layers.py RELEASE      exit code 1: the bug is there; 0.24.0-0.28.0

A correction gives each state the layer's place in the block and the step from block to block, as the layers of attention have.
"""

import sys

from attnfix.compat.releases import fetch
from attnfix.prove import side, stubs


def main(release: str) -> int:
    sys.path.insert(0, str(fetch.fetch("vllm", release)))
    stubs.install("vllm")
    side._ease_engine("vllm")
    from vllm.config import KVTransferConfig

    from attnfix.patches.lab.vllm import kernels
    from attnfix.patches.lab.vllm.hybrid_pool import States
    from attnfix.patches.lab.vllm.shared_pool import served_by

    kernels.stand_in()
    extra = {"enable_cross_layers_blocks": "True"}
    transfer = KVTransferConfig(kv_connector="DecodeBenchConnector", kv_role="kv_both", kv_connector_extra_config=extra)
    with served_by("V1"), States(vllm={"kv_transfer_config": transfer}) as server:
        groups = server.kv_cache_config.kv_cache_groups
        states = [name for group in groups if type(group.kv_cache_spec).__name__ == "MambaSpec" for name in group.layer_names]
        layers = server.config.compilation_config.static_forward_context
        starts = {layers[name].kv_cache[0].data_ptr() for name in states}
    print(f"vllm {release}: {len(states)} layers keep their states in {len(starts)} places")
    return 1 if len(starts) < len(states) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
