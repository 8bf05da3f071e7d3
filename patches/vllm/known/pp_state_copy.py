"""vllm.pp-state-copy, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.pp-state-copy",
    title="Hybrid models with drafts and pipeline parallelism copy recurrent states of one request to another",
    symptom="Under load answers lose their context or turn into garbage; one request at a time is right.",
    symptoms=(SHARED_BATCH, GARBAGE, SPECULATION),
    releases=(">=0.25.0,<0.32.0",),
    code=("vllm.v1.worker.gpu.model_states.mamba_hybrid:MambaHybridModelState._ensure_align_ctx",),
    upstream=Upstream("vllm-project/vllm", pull=55506, issue=55951),
    hits=AllOf(
        Is("model runner", "V2"),
        Is("cache mode of states", "align"),
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Above("pipeline parallel size", 1),
    ),
    avoid="Start with `--no-enable-prefix-caching`, or without `--speculative-config`.",
)
