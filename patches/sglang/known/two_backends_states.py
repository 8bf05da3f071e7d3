"""sglang.two-backends-states, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, SPECULATION

_NAMES = "flashinfer", "triton", "fa3", "fa4", "trtllm_mha", "aiter", "trtllm_mla", "cutlass_mla", "flashmla"

BUG = KnownBug(
    id="sglang.two-backends-states",
    title="Hybrid models with MTP and two attention backends die at the first verification",
    symptom="An AttributeError names update_mamba_state_after_mtp_verify. DFlash goes on with stale states: garbage.",
    symptoms=(DIES, SPECULATION),
    releases=(">=0.5.3,<0.5.14",),
    code=("sglang.srt.layers.attention.hybrid_attn_backend:HybridAttnBackend",),
    upstream=Upstream("sgl-project/sglang", pull=25883),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("Mamba2 layers", OFF),
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE", "DFLASH"),
        AnyOf(Since("0.5.10"), Is("spec v2", OFF)),
        Not(Is("--disaggregation-mode", "prefill")),
        AnyOf(Not(Is("release", "0.5.9")), Is("architecture", "BailingMoeV2_5ForCausalLM")),
        AnyOf(*(AllOf(Is("prefill backend", name), Not(Is("decode backend", name))) for name in _NAMES)),
    ),
    avoid="Name one backend with `--attention-backend`, and none for prefill or decode alone.",
    harm=CRASH,
)
