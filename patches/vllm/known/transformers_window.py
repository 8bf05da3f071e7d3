"""vllm.transformers-window, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

BUG = KnownBug(
    id="vllm.transformers-window",
    title="Long prompts are answered worse by multimodal models of Transformers: layers have no window",
    symptom="With `--model-impl transformers`, layers with a sliding window see the whole prompt of a model like Gemma-3.",
    symptoms=(LONG_PROMPT,),
    releases=(">=0.10.1,<0.28.0",),
    code=(
        "vllm.model_executor.models.transformers:TransformersBase.create_attention_instances",
        "vllm.model_executor.models.transformers.base:Base.create_attention_instances",
    ),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("--model-impl", "transformers"),
        Is("sliding-window layers", ON),
        Unseen("a model whose text part alone lists its `layer_types`, as those for images do"),
    ),
    avoid="Start with `--model-impl vllm`, where vLLM has the model.",
)
