"""vllm.mamba-overlap-copy, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.mamba-overlap-copy",
    title="Hybrid models with drafts now and then garble a convolution state at the end of a block",
    symptom="Now and then an answer derails where it passes a block's end, and so do later turns: a copy overlaps its source.",
    symptoms=(SPECULATION, CACHED_PREFIX, GARBAGE),
    releases=(">=0.15.0,<0.29.0",),
    code=(
        "vllm.v1.worker.mamba_utils:batch_memcpy_kernel",
        "vllm.v1.worker.mamba_utils:_copy_mamba_state_block",
        "vllm.v1.worker.mamba_utils:postprocess_mamba_fused_kernel",
    ),
    upstream=Upstream("vllm-project/vllm", pull=50729),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Is("cached prefixes of a hybrid model", ON),
        AnyOf(
            Is("Mamba2 layers", OFF),
            Is("--mamba-cache-mode", "align"),
            AllOf(Since("0.28.0"), Not(Is("--mamba-cache-mode", "all"))),
        ),
    ),
    avoid="Start with `--no-enable-prefix-caching`, or without `--speculative-config`.",
)
