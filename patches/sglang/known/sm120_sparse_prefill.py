"""sglang.sm120-sparse-prefill, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

_VARIABLE = "$SGLANG_OPT_FLASHMLA_SPARSE_PREFILL"
_SIZE = "--chunked-prefill-size"
_SPLIT = "--enable-prefill-cp", "--enable-dsa-prefill-context-parallel", "--enable-nsa-prefill-context-parallel"

BUG = KnownBug(
    id="sglang.sm120-sparse-prefill",
    title="DeepSeek V4 ends at its first prompt, or first long one, on RTX 50 and RTX PRO",
    symptom='The server dies with "Sparse Attention Forward Kernel is only supported on SM90a and SM100f architectures".',
    symptoms=(DIES,),
    releases=(">=0.5.13,<0.5.16",),
    code=("sglang.srt.layers.attention.deepseek_v4_backend:DeepseekV4AttnBackend.forward",),
    upstream=Upstream("sgl-project/sglang", issue=31578),
    hits=AllOf(
        Is("architecture", "DeepseekV4ForCausalLM"),
        Is("compute capability", 120, 121),
        Not(Is("--disaggregation-mode", "decode")),
        AnyOf(
            AllOf(Since("0.5.15"), Not(Is(_VARIABLE, "0", "false", "False")), Not(AnyOf(*map(Given, _SPLIT)))),
            Given(_VARIABLE),
            AllOf(Above(_SIZE, 11673), AnyOf(Not(Given("--enable-dp-attention")), Unseen("the size divided by --dp-size"))),
            Is(_SIZE, "-1"),
        ),
    ),
    avoid="Set SGLANG_OPT_FLASHMLA_SPARSE_PREFILL=0, and `--chunked-prefill-size` to 8192.",
    harm=CRASH,
)
