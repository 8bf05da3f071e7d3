"""sglang.fa3-deterministic-windows, as data.

`python -m tests.gpu.fa3_chunk_ends` on one H200, with the kernel of 0.5.13.post1: with windows, up to two thirds of the rows
have other bits in another chunk, no further from float64. Without windows, heads of 128 to 256 keep theirs in every chunk.
"""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SHARED_BATCH

BUG = KnownBug(
    id="sglang.fa3-deterministic-windows",
    title="Deterministic inference is not deterministic: window layers on FlashAttention 3 behind a chunk's end",
    symptom="A long prompt at temperature 0 gets another answer beside other prompts, which move the ends of its chunks.",
    symptoms=(SHARED_BATCH, LONG_PROMPT),
    releases=(">=0.5.3,<=0.5.23",),
    code=("sglang.srt.managers.scheduler:Scheduler.init_deterministic_inference_config",),
    upstream=Upstream("sgl-project/sglang", pull=28063),
    hits=AllOf(Is("deterministic inference", ON), Is("prefill backend", "fa3"), Is("sliding-window layers", ON)),
    avoid="Set `--attention-backend triton`, or `--chunked-prefill-size -1`, with which a prompt is not cut.",
)
