"""vllm.triton-mla-head-sizes, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="vllm.triton-mla-head-sizes",
    title="The server dies on TRITON_MLA when keys are wider than a power of two (Lk above Lv)",
    symptom="A model with absorbed heads of another size than 576 or 288 ends with a shape error of Triton's decode kernel.",
    symptoms=(DIES,),
    releases=(">=0.20.0,<0.21.0",),
    code=("vllm.v1.attention.ops.triton_decode_attention:_decode_grouped_att_m_fwd",),
    upstream=Upstream("vllm-project/vllm", issue=40705, pull=40966),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "TRITON_MLA"),
        Unseen("kv_lora_rank plus qk_rope_head_dim other than 576 and 288"),
    ),
    avoid="Select another MLA backend with `--attention-backend`.",
    harm=CRASH,
)
