"""vllm.ministral3-query-scale, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="vllm.ministral3-query-scale",
    title="Ministral 3 answers worse beyond its original context length, with a config of transformers' format",
    symptom="Answers get worse beyond 16,384 tokens: queries there are not scaled as `llama_4_scaling_beta` asks.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.20.0,<=0.33.0",),
    code=("vllm.model_executor.models.mistral:MistralAttention.__init__",),
    upstream=Upstream("vllm-project/vllm", issue=48621),
    hits=AllOf(
        Is("architecture", "Ministral3ForCausalLM", "Mistral3ForConditionalGeneration"),
        Not(Is("--config-format", "mistral")),
        Unseen("llama_4_scaling_beta in rope_parameters of a config.json that the server reads, no params.json"),
    ),
    avoid="Serve Mistral's own files: `--config-format mistral --load-format mistral --tokenizer-mode mistral`.",
)
