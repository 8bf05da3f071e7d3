"""vllm.dbo-second-half, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.dbo-second-half",
    title="Dual batch overlap ends the server or garbles answers: half a step takes lengths of the other half",
    symptom="With `--enable-dbo`, an assertion on the page table's shape, or garbage where both halves have as many requests.",
    symptoms=(DIES, PARALLEL, GARBAGE),
    releases=(">=0.14.0,<=0.33.0",),
    code=("vllm.v1.worker.gpu_model_runner:GPUModelRunner._build_attention_metadata",),
    upstream=Upstream("vllm-project/vllm", pull=48659),
    hits=AllOf(
        AnyOf(Given("--enable-dbo"), Above("--ubatch-size", 1)),
        Above("data parallel ranks", 1),
        Is("model runner", "V1"),
        AnyOf(
            Is("attention backend", "FLASH_ATTN", "B12X"),
            Is("Mamba2 layers", ON),
            Is("architecture", "JambaForCausalLM", "Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm2VlForConditionalGeneration"),
        ),
        Unseen("steps above `--dbo-prefill-token-threshold` or `--dbo-decode-token-threshold` tokens"),
    ),
    avoid="Start without `--enable-dbo`, or, with a model without Mamba layers, with `--attention-backend TRITON_ATTN`.",
)
