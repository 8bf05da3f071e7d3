"""vllm.exaone4-nope, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import BACKEND

BUG = KnownBug(
    id="vllm.exaone4-nope",
    title="EXAONE 4.0 32B answers badly: layers of global attention rotate keys that have no position",
    symptom="Answers are worse than those of Transformers: the model's full-attention layers use no rotary embedding.",
    symptoms=(BACKEND,),
    releases=(">=0.10.1,<0.10.2",),
    code=("vllm.model_executor.models.exaone4:Exaone4Attention.__init__",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(Is("architecture", "Exaone4ForCausalLM"), Is("sliding-window layers", ON)),
    avoid="Nothing within the release avoids it; take release 0.10.2.",
)
