"""vllm.dcp-v2-drafts, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

BUG = KnownBug(
    id="vllm.dcp-v2-drafts",
    title="The server ends at the second draft of an MLA drafter under decode context parallelism (V2 runner)",
    symptom="`'NoneType' object is not subscriptable` ends the server: steps of the drafter lack the lengths of this rank.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.19.0,<0.29.0",),
    code=(
        "vllm.v1.worker.gpu.spec_decode.eagle.speculator:EagleSpeculator._build_draft_attn_metadata",
        "vllm.v1.worker.gpu.spec_decode.speculator:DraftModelSpeculator._build_draft_attn_metadata",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("model runner", "V2"),
        Is("attention", "MLA"),
        Above("decode context parallel size", 1),
        Is("speculative decoding", ON),
        Unseen("a drafter with dense MLA that drafts two tokens or more"),
    ),
    avoid="Draft one token (`num_speculative_tokens` 1), or set `VLLM_USE_V2_MODEL_RUNNER=0`.",
    harm=CRASH,
)
