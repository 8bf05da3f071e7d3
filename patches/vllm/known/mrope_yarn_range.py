"""vllm.mrope-yarn-range, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT

_ROTARY = "vllm.model_executor.layers.rotary_embedding"

BUG = KnownBug(
    id="vllm.mrope-yarn-range",
    title="Worse answers of Qwen-VL and Qwen3.5 with YaRN: its range is found for four times the length",
    symptom="Answers of a model with M-RoPE and YaRN are worse than those of Transformers, at each length.",
    symptoms=(LONG_PROMPT,),
    # Between them, such a table is not made: an AttributeError at startup
    releases=(">=0.11.0,<0.12.0", ">=0.17.0,<=0.33.0"),
    code=(f"{_ROTARY}.mrope:MRotaryEmbedding.__init__", f"{_ROTARY}.mrope:MRotaryEmbedding._compute_inv_freq"),
    upstream=Upstream("vllm-project/vllm", pull=25384),  # which brought it
    hits=AllOf(Is("M-RoPE", ON), Unseen("YaRN beside `mrope_section` in config.json or `--hf-overrides`")),
    avoid="Set `beta_fast` to 128 and `beta_slow` to 4 in the YaRN settings: four times the usual values.",
    ran=("0.11.0", "0.33.0"),
)
