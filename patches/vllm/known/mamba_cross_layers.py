"""vllm.mamba-cross-layers, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.mamba-cross-layers",
    title="Garbage of hybrid models with enable_cross_layers_blocks: all states lie on top of each other",
    symptom="A hybrid model answers with garbage from the first request on, where a connector wants layers in one block.",
    symptoms=(GARBAGE,),
    releases=(">=0.24.0,<0.29.0",),
    code=(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._reshape_kv_cache_tensors",
        "vllm.v1.worker.gpu.attn_utils:_reshape_kv_cache",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("layers of a connector in one block", ON), Is("recurrent layers", ON)),
    avoid="Leave `enable_cross_layers_blocks` out of `kv_connector_extra_config`.",
    ran=("0.24.0", "0.28.0"),
)
