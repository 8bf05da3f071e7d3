"""sglang.kda-ptx-gate, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND, GARBAGE

_PREFILL, _BOTH = "--linear-attn-prefill-backend", "--linear-attn-backend"

BUG = KnownBug(
    id="sglang.kda-ptx-gate",
    title="NaN from Kimi Linear on GB300 with --linear-attn-prefill-backend ptx_kda",
    symptom="Answers are garbage: the decay of a chunk overflows, as the model's gate has no lower bound.",
    symptoms=(BACKEND, GARBAGE),
    releases=(">=0.5.17,<0.5.22",),
    code=("sglang.srt.layers.attention.linear.kernels.kda_ptx:PtxKDAKernel.extend",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        AnyOf(
            Is("architecture", "KimiLinearForCausalLM"),
            AllOf(Is("architecture", "BailingMoeV3ForCausalLM"), Unseen("whether config.json leaves kda_safe_gate false")),
        ),
        Is("compute capability", 103),
        AnyOf(Is(_PREFILL, "ptx_kda"), AllOf(Is(_PREFILL, OFF), Is(_BOTH, "ptx_kda"))),
    ),
    avoid="Set `--linear-attn-prefill-backend triton`.",
)
