"""vllm.exaone4-nope, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Given, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, LONG_PROMPT

from . import wrap

_ATTENTION = "vllm.model_executor.models.exaone4:Exaone4Attention"

FIX = Fix(
    id="vllm.exaone4-nope",
    title="EXAONE 4.0 32B answers badly: layers of full attention rotate queries and keys",
    symptom="EXAONE 4.0 32B solves fewer tasks than elsewhere: 67 % of AIME 2025, and not 85 %. No error.",
    symptoms=(GARBAGE, LONG_PROMPT),
    cause=(
        "The model has no positions in its layers of full attention. The engine rotates by position there, too: it takes each "
        "such layer for one of a model without windows."
    ),
    correction=(
        "Layers of full attention rotate nothing in a model that has layers with a window, as in 0.10.2. A server with a KV "
        "connector stays as it is, since its keys have readers elsewhere. Compiled code has a cache entry of its own; where "
        "`cache_dir` names its folder, all stays as it is."
    ),
    upstream=Upstream("vllm-project/vllm", pull=23918),
    hardware="any GPU (EXAONE 4.0 32B)",
    default=True,
    default_reason="silent wrong output of a published model by default, and 0.10.2 rotates the same layers",
    targets=(Target(wrap.init, needed=wrap.has_windows, paths=(f"{_ATTENTION}.__init__",)),),
    witnesses=(
        f"{_ATTENTION}.forward",
        # The key of compiled code
        "vllm.config:ModelConfig.compute_hash",
    ),
    cost="Some microseconds for each layer while the model is loaded. The model is compiled once more after it is switched on.",
    avoid="Nothing within the release avoids it; take release 0.10.2.",
    expect=(
        "On one replica, answers become those of 0.10.2, and texts at temperature 0 change. Each layer of full attention "
        "counts once, when the model is loaded. EXAONE 4.0 1.2B keeps its answers."
    ),
    stays_out=AnyOf(Is("KV connector", ON), Given("--compilation-config.cache_dir")),
    hits=AllOf(Is("architecture", "Exaone4ForCausalLM"), Is("sliding-window layers", ON)),
)
