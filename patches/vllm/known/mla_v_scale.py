"""vllm.mla-v-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES

BUG = KnownBug(
    id="vllm.mla-v-scale",
    title="Worse answers with calibrated scales of an FP8 MLA cache (FlashInfer, Triton)",
    symptom="Answers are worse where the scales of K and V differ: the cache is written with that of K, and read with V's.",
    symptoms=(KV_SCALES,),
    releases=(">=0.11.0,<0.19.0",),
    code=(
        "vllm.v1.attention.backends.mla.flashinfer_mla:FlashInferMLAImpl._forward_decode",
        "vllm.v1.attention.backends.mla.flashinfer_mla:FlashInferMLAImpl.forward_mqa",
    ),
    upstream=Upstream("vllm-project/vllm", pull=37054),
    hits=AllOf(
        Is("attention", "MLA", "sparse MLA"),
        AnyOf(
            Is("attention backend", "FLASHINFER_MLA"),
            AllOf(Since("0.17.0"), Is("attention backend", "FLASHINFER_MLA_SPARSE")),
            AllOf(Since("0.18.0"), Is("attention backend", "TRITON_MLA")),
        ),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        AnyOf(AllOf(Since("0.11.1"), Given("--calculate-kv-scales")), Unseen("scales of K and V that differ")),
    ),
    avoid="Start with --kv-cache-dtype auto, if the checkpoint does not ask for fp8 itself.",
)
