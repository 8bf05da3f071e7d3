"""vllm.mamba2-decay-overflow, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.mamba2-decay-overflow",
    title="A prompt now and then leaves an infinite recurrent state, and its answer is NaN (Mamba2)",
    symptom="Single answers are NaN or one repeated token: a decay rounds to a growth, and its exponential overflows.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.0,<0.20.0",),
    code=(
        "vllm.model_executor.layers.mamba.ops.ssd_chunk_state:_chunk_state_fwd_kernel",
        "vllm.model_executor.layers.mamba.ops.ssd_chunk_scan:_chunk_scan_fwd_kernel",
    ),
    upstream=Upstream("vllm-project/vllm", pull=37501),
    hits=AllOf(
        Is("Mamba2 layers", ON),
        Unseen("decays so strong that the rounding of their sum over a chunk exceeds the decay of a token"),
    ),
    avoid="Nothing within the release avoids it; take release 0.20.0.",
)
