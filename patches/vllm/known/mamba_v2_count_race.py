"""vllm.mamba-v2-count-race, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, GARBAGE, SPECULATION

BUG = KnownBug(
    id="vllm.mamba-v2-count-race",
    title="Hybrid models with drafts derail at a block's end by chance: states of layers are of unlike tokens",
    symptom="Answers derail by chance: one program resets the count of accepted drafts while programs of other layers read it.",
    symptoms=(SPECULATION, CACHED_PREFIX, GARBAGE),
    releases=(">=0.25.0,<0.28.0",),
    code=("vllm.v1.worker.mamba_utils:MambaSpecDecodeGPUContext.run_fused_postprocess_align",),
    upstream=Upstream("vllm-project/vllm", pull=50432),
    hits=AllOf(
        Is("model runner", "V2"),
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Is("cached prefixes of a hybrid model", ON),
        AnyOf(Is("Mamba2 layers", OFF), Is("--mamba-cache-mode", "align")),
    ),
    avoid="Set `VLLM_USE_V2_MODEL_RUNNER=0`, or start with `--no-enable-prefix-caching`.",
)
