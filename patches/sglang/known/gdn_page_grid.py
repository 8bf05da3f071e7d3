"""sglang.gdn-page-grid, as data."""

from attnfix.compat.doctor.condition import OFF, ON, Above, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX

BUG = KnownBug(
    id="sglang.gdn-page-grid",
    title="Linear-attention hybrids forget the conversation in follow-up turns with pages above 64 tokens",
    symptom="Qwen3-Next, Qwen3.5 or Kimi-Linear answers a prefix hit as if much of the conversation were missing.",
    symptoms=(CACHED_PREFIX,),
    releases=(">=0.5.13,<0.5.19",),
    code=(
        "sglang.srt.layers.attention.hybrid_linear_attn_backend:MambaAttnBackendBase._init_track_ssm_indices",
        "sglang.srt.managers.schedule_batch:ScheduleBatch._mamba_radix_cache_v2_req_prepare_for_extend",
    ),
    upstream=Upstream("sgl-project/sglang", issue=33515),
    hits=AllOf(
        Is("recurrent layers", ON), Is("Mamba2 layers", OFF), Is("tracked Mamba states", ON), Above("tokens of a page", 64)
    ),
    avoid="Set `--page-size 64` or less, with `--attention-backend triton` where fa4 asks for 128.",
    ran=("0.5.13", "0.5.18"),
)
