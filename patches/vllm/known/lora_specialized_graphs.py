"""vllm.lora-specialized-graphs, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GRAPHS, SHARED_BATCH

BUG = KnownBug(
    id="vllm.lora-specialized-graphs",
    title="A LoRA adapter is left out beside requests without one (--specialize-active-lora)",
    symptom="In steps that hold both, a CUDA graph leaves the adapter out. Its keys of these steps stay in the cache.",
    symptoms=(GRAPHS, SHARED_BATCH),
    releases=(">=0.19.0,<=0.33.0",),
    code=("vllm.lora.ops.triton_ops.lora_kernel_metadata:LoRAKernelMeta.prepare_tensors",),
    upstream=Upstream("vllm-project/vllm", report="vllm-lora-specialized-graphs"),
    hits=AllOf(
        Given("--enable-lora"),
        Given("--specialize-active-lora"),
        Not(Given("--enforce-eager")),
        Unseen("requests without an adapter beside those of one"),
    ),
    avoid="Leave `--specialize-active-lora` out.",
)
