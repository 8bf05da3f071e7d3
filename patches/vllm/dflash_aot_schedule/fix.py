"""vllm.dflash-aot-schedule, as data."""

from attnfix.compat.doctor.condition import AllOf, Is
from attnfix.compat.fix import SLOWER, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_SPECULATOR = "vllm.v1.worker.gpu.spec_decode.dflash.speculator:DFlashSpeculator"
_BASE = "vllm.v1.worker.gpu.spec_decode.speculator:DraftModelSpeculator"
_FLASH = "vllm.v1.attention.backends.flash_attn"
_BUILDER = f"{_FLASH}:FlashAttentionMetadataBuilder"

FIX = Fix(
    id="vllm.dflash-aot-schedule",
    title="A DFlash drafter has no draft accepted, or crashes the server, with CUDA graphs",
    symptom=(
        "With a DFlash drafter on Hopper, no draft is accepted while CUDA graphs run. Or the server dies of an illegal memory "
        "access in FlashAttention's combine kernel. The target's attention is not FlashAttention's, but MLA or FlashInfer. The "
        "text stays right."
    ),
    symptoms=(SPECULATION, DIES),
    cause=(
        "FlashAttention 3 can be given a schedule that was made ahead. vLLM makes none where layers differ in their sliding "
        "window, and looks at all layers of FlashAttention for that, target and drafter alike. Where only the drafter's are "
        "FlashAttention's, there is one window, so the schedule stays on. It is wrong for a drafter with a window."
    ),
    correction="Builders of a drafter with a sliding window make no schedule ahead; the kernel's launch makes its own.",
    upstream=Upstream("vllm-project/vllm", pull=54374),
    hardware="Hopper (DFlash, DFlash2 or DSpark with a sliding window; Model Runner V2; a target on MLA or FlashInfer)",
    default=True,
    default_reason="drafts that are never accepted, or a dead server; later releases leave the schedule out in the same way",
    targets=(Target(wrap.set_attn, paths=(f"{_SPECULATOR}.set_attn",)),),
    # Who makes the builders, when these make a schedule, and who launches with it
    witnesses=(
        f"{_BASE}.set_attn",
        f"{_SPECULATOR}.attn_vllm_config",
        "vllm.v1.worker.gpu.attn_utils:init_attn_backend",
        f"{_BUILDER}.__init__",
        f"{_BUILDER}.build",
        f"{_FLASH}:_get_sliding_window_configs",
        f"{_FLASH}:FlashAttentionImpl.forward",
    ),
    remove_when="no vLLM below 0.30.0 is served with DFlash",
    cost="None ahead of the drafter's launches, which then make their schedule each by itself.",
    expect="On one replica, the length of accepted drafts rises to that of --enforce-eager. The text is the same.",
    harm=SLOWER,
    hits=AllOf(Is("drafter", "DFlash"), Is("model runner", "V2"), Is("schedule of the drafter", "made ahead")),
)
