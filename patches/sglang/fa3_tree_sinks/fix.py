"""sglang.fa3-tree-sinks, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.signs import SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashattention_backend"
_BACKEND = f"{_MODULE}:FlashAttentionBackend"

FIX = Fix(
    id="sglang.fa3-tree-sinks",
    title="Verifying trees on FlashAttention 3 counts attention sinks twice",
    symptom="x",
    signs=(SPECULATION,),
    cause="x",
    correction="x",
    upstream=Upstream("sgl-project/sglang", report="sglang-fa3-tree-sinks"),
    hardware="NVIDIA Hopper (--attention-backend fa3, its default for gpt-oss)",
    default=False,
    default_reason="not proven on a GPU yet",
    targets=(
        Target(wrap.forward, needed=wrap.verifies_a_tree, paths=(f"{_BACKEND}.forward_extend",)),
        Target(wrap.forward, needed=wrap.drafts_a_tree, paths=(f"{_BACKEND}.forward_decode",)),
    ),
    witnesses=(
        f"{_BACKEND}.__init__",
        f"{_BACKEND}.init_forward_metadata",
    ),
    examined=(">=0.5.1",),
    remove_when="a release of sglang is served that counts them once: attnfix then sees it and does nothing",
    cost="x",
    expect="x",
    hits=AllOf(Is("speculative decoding", ON), Above("speculative topk", 1)),
)
