"""sglang.qwen35-mrope, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import IMAGES

from . import wrap

_LAYER = f"{wrap.QWEN}:Qwen3_5AttentionDecoderLayer"
_ROTARY = "sglang.srt.layers.rotary_embedding.mrope:MRotaryEmbedding"
_KERNELS = ("sglang.kernels.ops.attention.fused_qk_rmsnorm_rope_gate", "sglang.srt.layers.fused_qk_rmsnorm_rope_gate")
_FUSED = ("fused_qk_gemma_rmsnorm_rope_gate", "_fused_qk_rmsnorm_rope_gate_kernel")

FIX = Fix(
    id="sglang.qwen35-mrope",
    title="Qwen3.5 and Qwen3.6 misplace what they see in images and videos",
    symptom=(
        "Qwen3.5, Qwen3.6 or another model of their family names wrong places in images and videos: boxes are off, layouts are "
        "misread. Answers to text are right. No error."
    ),
    symptoms=(IMAGES,),
    cause=(
        "A token of an image has a position in time, height and width. The kernel that normalizes and rotates queries and keys "
        "reads the first alone: the whole image lies in one place."
    ),
    correction=(
        "For prompts with images, and in prefill graphs, the kernel gets cosines and sines of all three positions. Text keeps "
        "its bits."
    ),
    upstream=Upstream("sgl-project/sglang", pull=34446, issue=35345),
    hardware="NVIDIA GPUs (images and videos, Qwen3.5 and Qwen3.6)",
    default=True,
    default_reason="silent wrong output; fixed upstream to the same effect",
    targets=(Target(wrap.init, paths=(f"{_LAYER}.__init__",)),),
    # Which kernel runs and what it reads, how positions become lanes, and what a batch says of its images
    witnesses=(
        f"{_LAYER}.self_attention",
        f"{_LAYER}.forward_prepare_cuda_fused",
        f"{_ROTARY}.__init__",
        *(f"{module}:{name}" for module in _KERNELS for name in _FUSED),
        "sglang.srt.managers.mm_utils:general_mm_embed_routine",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_extend_or_draft_extend_or_mixed",
    ),
    cost=(
        "On one H200, the kernel alone: 5 to 23 µs more for each attention layer of 64 to 8192 tokens; where no graph serves "
        "the prompt, up to 70 µs of launches on the host. From 0.5.16 also for text that a prefill graph serves. 768 bytes of "
        "memory for each token of the batch. Nothing in decode. A tiny served model kept 0.99 (0.91-1.07) of its tokens/s with "
        "images, in 20 pairs: too few to tell 0.98."
    ),
    avoid="Nothing short of 0.5.19 does: no option chooses another kernel.",
    expect=(
        "On one replica, ask for the box of an object in an image at temperature 0: the answer becomes that of 0.5.14 or "
        "0.5.19. Images that a prefill graph serves are corrected and not counted. Stays wrong: keys that a shared cache holds "
        "from other replicas, InternS2-Mobius, and images under `--cuda-graph-backend-prefill tc_piecewise` (in 0.5.15 also "
        "`breakable` or `full`)."
    ),
    stays_out=Is("prefill graph that the fix is not in", ON),
    hits=AllOf(Is("GPU", "NVIDIA"), Is("images in Qwen3.5's attention", ON)),
)
