"""vllm.yarn-attention-factor, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.yarn-attention-factor",
    title="Worse answers from checkpoints whose YaRN settings name an attention factor (Ministral 3)",
    symptom=(
        "Answers are worse than transformers gives, at every length: `attention_factor`, `mscale` and `mscale_all_dim` of "
        "YaRN are not read."
    ),
    symptoms=(GARBAGE,),
    releases=(">=0.10.0,<0.30.0",),
    code=("vllm.model_executor.layers.rotary_embedding:get_rope",),
    upstream=Upstream("vllm-project/vllm", issue=48621),
    hits=AllOf(
        Is("own attention factor of YaRN", ON),
        Not(Is("--config-format", "mistral")),
        AnyOf(
            Not(Is("architecture", "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration")),
            Is("--config-format", "hf"),
            Unseen("a config.json that the server reads, no params.json"),
        ),
    ),
    avoid="Set `attn_factor` in the YaRN settings of config.json: the wanted attention factor over 0.1 · ln(factor) + 1.",
)
