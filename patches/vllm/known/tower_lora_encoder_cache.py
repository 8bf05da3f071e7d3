"""vllm.tower-lora-encoder-cache, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, IMAGES

BUG = KnownBug(
    id="vllm.tower-lora-encoder-cache",
    title="Images of one LoRA adapter are answered from another adapter's encoder outputs",
    symptom=(
        "An adapter with `--enable-tower-connector-lora` is loaded again under its name: images are read as the former "
        "one encoded them."
    ),
    symptoms=(IMAGES, CACHED_PREFIX),
    releases=(">=0.14.0,<=0.33.0",),
    code=("vllm.v1.engine.input_processor:InputProcessor._get_mm_identifier",),
    upstream=Upstream("vllm-project/vllm", issue=44939, pull=44950),
    hits=AllOf(Is("--enable-tower-connector-lora", ON), Is("LoRA adapters", ON), Is("adapters change while serving", ON)),
    avoid="Load each version of an adapter under a name of its own.",
)
