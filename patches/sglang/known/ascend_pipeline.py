"""sglang.ascend-pipeline, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.ascend-pipeline",
    title="Out of memory at the start with pipeline parallelism on Ascend",
    symptom="Each stage sizes its KV cache by its own layers, and allocates it for all layers of the model.",
    symptoms=(DIES,),
    releases=(">=0.5.1,<0.5.4.post2",),
    code=("sglang.srt.model_executor.model_runner:ModelRunner.init_memory_pool",),
    upstream=Upstream("sgl-project/sglang"),
    harm=CRASH,
    hits=AllOf(
        Is("attention", "MHA"),
        Is("prefill backend", "ascend"),
        Not(Is("--pp-size", "off", "1")),
    ),
    avoid="Use --tp-size in place of --pp-size.",
)
