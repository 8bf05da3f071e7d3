"""vllm.transformers-sinks, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.transformers-sinks",
    title="Models of Transformers answer garbage where they have attention sinks: sinks are left out",
    symptom="With `--model-impl transformers` gpt-oss, and Granite SWA below 0.29.0 by default, repeat a token or stop.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.1,<0.30.0",),
    code=(
        "vllm.model_executor.models.transformers:vllm_flash_attention_forward",
        "vllm.model_executor.models.transformers.base:vllm_flash_attention_forward",
        "vllm.model_executor.models.transformers:vllm_attention_forward",
    ),
    upstream=Upstream("vllm-project/vllm", pull=52156),
    hits=AllOf(
        AnyOf(
            Is("--model-impl", "transformers"),
            AllOf(Not(Since("0.29.0")), Is("architecture", "GraniteSWAForCausalLM", "GraniteMoeSWAForCausalLM")),
        ),
        Unseen("a model that hands its sinks to attention as `s_aux`"),
    ),
    avoid="Start with `--model-impl vllm`, where vLLM has the model.",
)
