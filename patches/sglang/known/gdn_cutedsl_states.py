"""sglang.gdn-cutedsl-states, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Not
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_DECODE = "cutedsl_gdn:cutedsl_fused_sigmoid_gating_delta_rule_update"

BUG = KnownBug(
    id="sglang.gdn-cutedsl-states",
    title="Gibberish of Qwen3.5 and Qwen3-Next with cutedsl decode: it reads recurrent states transposed",
    symptom="The first token is right, and what follows is gibberish. Prefill keeps states as V by K, decode as K by V.",
    symptoms=(GARBAGE, BACKEND),
    releases=(">=0.5.10,<0.5.22",),
    code=(f"sglang.jit_kernel.{_DECODE}", f"sglang.kernels.ops.attention.{_DECODE}"),
    upstream=Upstream("sgl-project/sglang", issue=22472),
    hits=AllOf(
        Is(
            "architecture",
            *("Qwen3NextForCausalLM", "Qwen3_5ForConditionalGeneration", "Qwen3_5MoeForConditionalGeneration"),
            *("Qwen3_5ForCausalLM", "Qwen3_5MoeForCausalLM", "InternS2PreviewForConditionalGeneration"),
            *("MiniCPMV4_6ForConditionalGeneration", "InternS2MobiusForConditionalGeneration"),
        ),
        AnyOf(
            Is("--linear-attn-decode-backend", "cutedsl"),
            AllOf(Is("--linear-attn-backend", "cutedsl"), Is("--linear-attn-decode-backend", OFF)),
        ),
        Is("speculative decoding", OFF),
        Not(Is("--disaggregation-mode", "prefill")),
    ),
    avoid="Set `--linear-attn-decode-backend triton`.",
)
