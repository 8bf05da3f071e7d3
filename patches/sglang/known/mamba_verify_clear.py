"""sglang.mamba-verify-clear, as data."""

from attnfix.compat.doctor.condition import OFF, ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SPECULATION

BUG = KnownBug(
    id="sglang.mamba-verify-clear",
    title="Hybrid models answer garbage with speculation outside CUDA graphs: each step resets their states",
    symptom="Each verification zeroes the recurrent state, or sets it back to the cached prefix, as the prefill did.",
    symptoms=(GARBAGE, SPECULATION),
    releases=(">=0.5.13,<0.5.14",),
    code=("sglang.srt.layers.attention.hybrid_linear_attn_backend:MambaAttnBackendBase._execute_deferred_mamba_cow_and_clear",),
    upstream=Upstream("sgl-project/sglang", pull=27095),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Not(Is("--disaggregation-mode", "prefill")),
        AnyOf(Is("CUDA graphs", OFF), Unseen("whether more requests run at once than the graphs hold")),
    ),
    avoid="Leave CUDA graphs on, and set `--max-running-requests` no higher than the largest batch that they hold.",
)
