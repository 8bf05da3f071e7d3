"""vllm.disabled-window-rope, as data. Layers of full attention: vllm.exaone4-nope."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.disabled-window-rope",
    title="Garbage of EXAONE 4 and Command A with --disable-sliding-window: no layer knows positions",
    symptom="Layers that lose their window lose their rotary embedding, too; the model sees words without an order.",
    symptoms=(GARBAGE,),
    releases=(">=0.10.1,<=0.33.0",),
    code=(
        "vllm.model_executor.models.exaone4:Exaone4Attention.forward",
        "vllm.model_executor.models.commandr:CohereAttention.forward",
    ),
    upstream=Upstream("vllm-project/vllm", pull=23918),  # which brought it
    hits=AllOf(
        Given("--disable-sliding-window"),
        AnyOf(
            Is("architecture", "Exaone4ForCausalLM", "Exaone4_5_ForConditionalGeneration"),
            # From 0.29.0 on, these do not start
            AllOf(
                Not(Since("0.29.0")),
                Is("architecture", "Cohere2ForCausalLM", "Cohere2VisionForConditionalGeneration"),
            ),
        ),
    ),
    avoid="Start without `--disable-sliding-window`.",
    ran=("0.33.0",),
)
