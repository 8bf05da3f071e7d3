"""vllm.linear-attention-graph-blocks, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="vllm.linear-attention-graph-blocks",
    title="No server starts where fewer states fit than a decode graph has requests (Gated DeltaNet, KDA)",
    symptom="The capture of CUDA graphs ends with `assert num_cache_lines >= batch` where little memory is left for the cache.",
    symptoms=(DIES, GRAPHS),
    releases=(">=0.10.2,<0.18.0",),
    code=(
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner.initialize_cudagraph_capture",
        "vllm.v1.worker.gpu_model_runner:GPUModelRunner._check_and_update_cudagraph_mode",
    ),
    upstream=Upstream("vllm-project/vllm", issue=34094, pull=34571),
    hits=AllOf(
        Is("linear attention", ON),
        Is("full CUDA graphs", ON),
        Is("speculative decoding", OFF),  # the capture with drafts does not come to the assertion
        Unseen("a cache with fewer blocks than `--max-num-seqs` and the largest graph"),
    ),
    avoid="Lower `--max-num-seqs`, or start with `--enforce-eager`.",
    harm=CRASH,
)
