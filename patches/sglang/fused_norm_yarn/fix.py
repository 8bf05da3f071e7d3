"""sglang.fused-norm-yarn, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import LONG_PROMPT

from . import wrap

_MODEL = "sglang.srt.models.qwen3_moe"
_LAYER = f"{_MODEL}:Qwen3MoeAttention"

FIX = Fix(
    id="sglang.fused-norm-yarn",
    title="Qwen3 MoE takes another YaRN factor than the configured one with --enable-fused-qk-norm-rope",
    symptom="Answers to prompts beyond the original context length are bad: the kernel's factor is a ratio of two lengths.",
    symptoms=(LONG_PROMPT,),
    cause=(
        "The fused kernel gets `max_position_embeddings` over the original length as its factor. Qwen3 MoE is published with "
        "40,960 over 32,768: it stretches positions by 1.25 where its user asks for 4."
    ),
    correction=(
        "The layer has a copy of the config, whose length is the factor times the original one. A server whose keys others "
        "share stays as it is."
    ),
    upstream=Upstream("huggingface/transformers", issue=38224),
    hardware="NVIDIA GPUs (Qwen3 MoE with YaRN)",
    targets=(Target(wrap.init, needed=wrap.other_length, paths=(f"{_LAYER}.__init__",)),),
    # Arguments of the kernel, its choice, and the server's launch
    witnesses=(
        f"{_MODEL}:compute_yarn_parameters",
        f"{_LAYER}.apply_qk_norm_rope",
        "sglang.srt.server_args:get_global_server_args",
    ),
    cost="A copy of the config for each layer while the model is loaded; nothing while it serves.",
    avoid="Leave `--enable-fused-qk-norm-rope` out.",
    expect="On one replica, answers to long prompts become those without `--enable-fused-qk-norm-rope`.",
    stays_out=Is("others that share keys", ON),
    hits=AllOf(Is("GPU", "NVIDIA"), Is("YaRN of another factor in the fused kernel", ON)),
)
