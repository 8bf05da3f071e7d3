"""vllm.dynamic-ntk-base, as data."""

from attnfix.compat.doctor.condition import ON, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.dynamic-ntk-base",
    title="Every position is rotated as if the prompt were at its longest (InternLM, dynamic NTK)",
    symptom="Answers are worse than those of transformers at shorter ones: the base is scaled for `factor` times the context.",
    symptoms=(GARBAGE,),
    releases=("<0.22.0",),
    code=(
        "vllm.model_executor.layers.rotary_embedding:DynamicNTKScalingRotaryEmbedding._compute_cos_sin_cache",
        "vllm.model_executor.layers.rotary_embedding.dynamic_ntk_scaling_rope:DynamicNTKScalingRotaryEmbedding._compute_cos_sin_cache",
    ),
    upstream=Upstream("vllm-project/vllm", pull=41277, issue=41236),
    hits=Is("dynamic NTK", ON),
    avoid="Set `rope_scaling` to null in config.json where prompts stay within `max_position_embeddings`.",
)
