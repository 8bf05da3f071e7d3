"""sglang.gated-split-views, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

from . import wrap

_FLA = ("sglang.srt.layers.attention.fla", "sglang.kernels.ops.attention.fla")
_GATES, _STEPS = "fused_gdn_gating:fused_gdn_gating", "fused_sigmoid_gating_recurrent:fused_sigmoid_gating_delta_rule_update"
_LAYER = "sglang.srt.models.qwen3_5:Qwen3_5GatedDeltaNet"
_GDN = "sglang.srt.layers.attention.linear.gdn_backend:GDNAttnBackend"
_KERNEL = "sglang.srt.layers.attention.linear.kernels.gdn_triton:TritonGDNKernel"

FIX = Fix(
    id="sglang.gated-split-views",
    title="Bad answers of Qwen3.5-27B: the gates of its linear layers are read from wrong addresses",
    symptom=(
        "Qwen3.5-27B loses most of its context: tokens of a prompt decay by gates of other tokens and heads. Verified drafts "
        "of speculative decoding do so, too. Models with other than 1, 2 or 4 heads of values for a head of keys are hit. No "
        "error."
    ),
    symptoms=(GARBAGE, LONG_PROMPT),
    cause=(
        "One projection has both gates of a linear layer. Where no kernel splits it, the layer hands on views of it. Triton's "
        "kernels take rows for neighbours in memory: of both gates in prefill, of the decay in verification."
    ),
    correction=(
        "Triton's kernels get copies of gates that are views, as in 0.5.11. Prefill is corrected with every linear backend. "
        "Decode and verification by FlashInfer or CuTe DSL stay as they are."
    ),
    upstream=Upstream("sgl-project/sglang", pull=22312, issue=22311),
    hardware="any GPU (Qwen3.5 with other than 1, 2 or 4 heads of values for a head of keys, as Qwen3.5-27B)",
    default=True,
    default_reason="silent wrong output; fixed upstream in the same way",
    targets=tuple(
        Target(correct, needed=needed, paths=tuple(f"{home}.{name}" for home in _FLA))
        for name, correct, needed in (
            (_GATES, wrap.with_copies, wrap.gates_apart),
            (_STEPS, wrap.with_copy, wrap.decay_apart),
        )
    ),
    # Makers and readers of the gates
    witnesses=(
        f"{_LAYER}.forward",
        f"{_LAYER}.create_ba_proj",
        f"{_LAYER}.fix_query_key_value_ordering",
        f"{_GDN}.forward_extend",
        f"{_KERNEL}.target_verify",
        *(f"{home}.{name.partition(':')[0]}:{name.partition(':')[2]}_kernel" for home in _FLA for name in (_GATES, _STEPS)),
        "sglang.srt.utils.common:next_power_of_2",
    ),
    cost=(
        "A look at two tensors for each linear layer. Where it fires, two small copies per layer in prefill, and one in "
        "verification."
    ),
    avoid="Nothing within the release.",
    expect=(
        "On one replica with Qwen3.5-27B, ask about details of a long prompt: stock, most answers miss them; fixed, they are "
        "those of 0.5.11."
    ),
    hits=Is("gates that are views", ON),
)
