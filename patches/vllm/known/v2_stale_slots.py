"""vllm.v2-stale-slots, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, GRAPHS, SHARED_BATCH

BUG = KnownBug(
    id="vllm.v2-stale-slots",
    title="Padding overwrites KV of other requests with CUDA graphs (V2 model runner)",
    symptom="Answers are now and then wrong beside or behind other prompts: rows of padding keep the slots of an earlier step.",
    symptoms=(GRAPHS, SHARED_BATCH, GARBAGE),
    releases=(">=0.17.0,<0.18.0",),
    code=("vllm.v1.worker.gpu.block_table:_compute_slot_mappings_kernel",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("model runner", "V2"),
        Not(Is("--enforce-eager", ON)),
        Not(Is("--compilation-config.cudagraph_mode", "NONE", "none")),
    ),
    avoid="Start without `VLLM_USE_V2_MODEL_RUNNER`, or with `--enforce-eager`.",
)
