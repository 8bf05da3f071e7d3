"""vllm.aiter-prefill-plan, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.doctor.gpus import AMD
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.aiter-prefill-plan",
    title="Prompts now and then read by the plan of the next step on MI350 (AITER MLA)",
    symptom="Under load a prefill is garbage: the next step overwrites the plan of tiles while the kernels read it.",
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.22.0,<0.32.0",),
    code=("vllm.v1.attention.backends.mla.rocm_aiter_mla:AiterMLAMetadataBuilder._build_fp8_prefill_ps_metadata",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("GPU", AMD),
        Is("attention", "MLA"),
        AnyOf(Not(Since("0.29.0")), Is("KV cache dtype", "fp8", "fp8_e4m3")),
        AnyOf(Given("$VLLM_ROCM_USE_AITER"), Is("attention backend", "ROCM_AITER_MLA", "ROCM_AITER_TRITON_MLA")),
        Is("async scheduling", ON),
        Unseen("an MI350 or MI355X"),
    ),
    avoid="Start with `--no-async-scheduling`, or, from 0.29.0 on, with `--kv-cache-dtype bfloat16`.",
)
