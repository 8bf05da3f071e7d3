"""vllm.glm5next-fp8-start, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.glm5next-fp8-start",
    title="No server of GLM-5.3-Flash starts on Hopper with an FP8 KV cache",
    symptom="The start ends in `MLA kv_data_type torch.uint8 is not supported`.",
    symptoms=(DIES,),
    releases=(">=0.30.0,<0.32.0",),
    code=("vllm.v1.attention.backends.mla.flashinfer_mla_sparse_sm90:FlashInferMLASparseSM90Builder.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=55222, issue=55221),
    hits=AllOf(
        Is("architecture", "Glm5NextForCausalLM", "Glm5NextForConditionalGeneration"),
        Is("compute capability", 90),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
    ),
    harm=CRASH,
    avoid="Start without `--kv-cache-dtype`: the cache has 16 bits then.",
)
