"""vllm.mla-reload-graphs, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS

BUG = KnownBug(
    id="vllm.mla-reload-graphs",
    title="MLA models decode with freed projections after weights are loaded again (full CUDA graphs)",
    symptom="After an update of weights (RL, or a deep sleep) decoding is garbage or that of the old weights.",
    symptoms=(GARBAGE, GRAPHS),
    releases=(">=0.16.0,<0.26.0",),
    code=("vllm.model_executor.layers.attention.mla_attention:MLAAttention.process_weights_after_loading",),
    upstream=Upstream("vllm-project/vllm", pull=48251),
    hits=AllOf(
        Is("attention", "MLA", "sparse MLA"),
        Is("full CUDA graphs", ON),
        Unseen("weights loaded again while the server runs, and AITER or a quantised `kv_b_proj`, as DeepSeek's of FP8"),
    ),
    avoid="Start with `--enforce-eager`, or restart the server for new weights.",
)
