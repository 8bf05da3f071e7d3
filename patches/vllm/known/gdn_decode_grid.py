"""vllm.gdn-decode-grid, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.gdn-decode-grid",
    title="The engine dies where more than 1000 requests decode with Gated DeltaNet: a grid is too large",
    symptom="A step of decodes alone ends with `Triton Error [CUDA]: invalid argument`, once requests times heads pass 65535.",
    symptoms=(DIES,),
    releases=(">=0.10.2,<0.28.0",),
    code=(
        "vllm.model_executor.layers.fla.ops.fused_recurrent:fused_recurrent_gated_delta_rule_fwd",
        "vllm.model_executor.layers.fla.ops.fused_recurrent:fused_recurrent_gated_delta_rule_packed_decode",
        "vllm.third_party.flash_linear_attention.ops.fused_recurrent:fused_recurrent_gated_delta_rule_packed_decode",
    ),
    upstream=Upstream("vllm-project/vllm"),
    harm=CRASH,
    hits=AllOf(
        Is("linear attention", ON),
        Is("speculative decoding", OFF),
        AnyOf(Is("--max-num-seqs", OFF), Above("--max-num-seqs", 511)),
        Unseen("decodes of a step times value heads of a rank above 65535, as 1024 requests of 64 heads"),
    ),
    avoid="Start with a lower `--max-num-seqs`: 65535 divided by the value heads of a rank, at most.",
)
