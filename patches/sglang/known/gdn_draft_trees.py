"""sglang.gdn-draft-trees, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SPECULATION

_BACKEND = "sglang.srt.layers.attention.hybrid_linear_attn_backend"

BUG = KnownBug(
    id="sglang.gdn-draft-trees",
    title="Qwen3-Next changes its text with draft trees: linear attention reads a tree as a chain",
    symptom="With topk above 1, drafts of one branch pass their states on to other branches, and then to the request.",
    symptoms=(SPECULATION,),
    releases=(">=0.5.2,<0.5.4.post3",),
    code=(
        f"{_BACKEND}:MambaAttnBackend.forward_extend",
        f"{_BACKEND}:GDNAttnBackend.forward_extend",
        f"{_BACKEND}:HybridLinearAttnBackend.update_mamba_state_after_mtp_verify",
    ),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        AnyOf(
            AllOf(Is("speculative algorithm", "EAGLE", "EAGLE3"), Is("--speculative-eagle-topk", OFF)),  # 4 by default
            AllOf(Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"), Above("--speculative-eagle-topk", 1)),
        ),
    ),
    avoid="Set --speculative-eagle-topk 1.",
)
