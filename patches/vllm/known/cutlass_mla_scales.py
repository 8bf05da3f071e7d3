"""vllm.cutlass-mla-scales, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import KV_SCALES

BUG = KnownBug(
    id="vllm.cutlass-mla-scales",
    title="Gibberish with calibrated scales of an FP8 MLA cache (CUTLASS_MLA)",
    symptom="Answers are wrong with an FP8 cache and scales other than 1: the decode kernel leaves the scales out.",
    symptoms=(KV_SCALES,),
    releases=(">=0.10.2,<0.19.0",),
    code=(
        "vllm.v1.attention.backends.mla.cutlass_mla:CutlassMLAImpl._forward_decode",
        "vllm.v1.attention.backends.mla.cutlass_mla:CutlassMLAImpl.forward_mqa",
    ),
    upstream=Upstream("vllm-project/vllm", pull=37054),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "CUTLASS_MLA"),
        Is("KV cache dtype", "fp8", "fp8_e4m3"),
        AnyOf(AllOf(Since("0.11.1"), Given("--calculate-kv-scales")), Unseen("scales of Q or K that are not 1")),
    ),
    avoid="Start with --kv-cache-dtype auto, if the checkpoint does not ask for fp8 itself.",
)
