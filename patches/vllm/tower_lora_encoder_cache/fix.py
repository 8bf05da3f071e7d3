"""vllm.tower-lora-encoder-cache, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, IMAGES

from . import wrap

_CACHE = "vllm.v1.core.encoder_cache_manager:EncoderCacheManager"

FIX = Fix(
    id="vllm.tower-lora-encoder-cache",
    title="Images of one LoRA adapter are answered from another adapter's encoder outputs",
    symptom=(
        "An adapter with `--enable-tower-connector-lora` is loaded again under its name: images are read as the former "
        "one encoded them."
    ),
    symptoms=(IMAGES, CACHED_PREFIX),
    cause=(
        "The encoder's cache finds an image by its hash and the adapter's name. A reload changes the path alone. The same name "
        "goes into the hashes of cached blocks."
    ),
    correction=(
        "The path goes into the name of the image, as in upstream's proposal (PR 44950, not released). An adapter that is "
        "loaded again from its path keeps what it has encoded, also if the files there have changed. Servers whose names of "
        "images others read stay as they are: with an EC connector, a KV connector or KV events."
    ),
    upstream=Upstream("vllm-project/vllm", issue=44939, pull=44950),
    hardware="any GPU (LoRA adapters of encoders, without an EC connector, a KV connector and KV events)",
    default_reason="no release of vLLM has another name for such an image yet",
    targets=(
        Target(
            wrap.get_mm_identifier,
            needed=wrap.has_adapter,
            paths=("vllm.v1.engine.input_processor:InputProcessor._get_mm_identifier",),
        ),
    ),
    # How the cache finds an image, and what an adapter is
    witnesses=(
        f"{_CACHE}.check_and_update_cache",
        f"{_CACHE}.allocate",
        "vllm.lora.request:LoRARequest",
    ),
    cost="About a microsecond for each image of a request with such an adapter.",
    avoid="Load each version of an adapter under a name of its own.",
    expect=(
        "On one replica, load an adapter, ask about an image, load another one from another path under its name, and ask "
        "again. The answer is that of a fresh server."
    ),
    stays_out=AnyOf(Is("KV connector", ON), Is("KV events", ON), Is("EC connector", ON)),
    hits=AllOf(Is("LoRA adapters of the encoder", ON), Is("LoRA adapters", ON), Is("adapters change while serving", ON)),
)
