"""sglang.lora-kernel-cache, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

_OPS = "sglang.srt.lora.triton_ops"

BUG = KnownBug(
    id="sglang.lora-kernel-cache",
    title="Wrong answers of LoRA adapters on csgmv: one compiled kernel serves layers of other widths",
    symptom="Requests of an adapter get wrong text on csgmv, and right text on the backend `triton`.",
    symptoms=(GARBAGE, SHARED_BATCH),
    releases=(">=0.5.3,<0.5.3.post2",),
    code=(
        f"{_OPS}.chunked_sgmv_shrink:_chunked_lora_shrink_kernel",
        f"{_OPS}.chunked_sgmv_expand:_chunked_lora_expand_kernel",
    ),
    upstream=Upstream("sgl-project/sglang", pull=11579),
    hits=AllOf(Is("LoRA adapters", ON), Is("LoRA backend", "csgmv")),
    avoid="Leave `--lora-backend` out: the default is `triton`.",
)
