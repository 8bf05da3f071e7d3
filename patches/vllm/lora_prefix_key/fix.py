"""vllm.lora-prefix-key, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

_CORE, _REQUEST = "vllm.v1.engine.core:EngineCore", "vllm.v1.request:Request"

FIX = Fix(
    id="vllm.lora-prefix-key",
    title="A reloaded LoRA adapter answers from the KV of the former one",
    symptom=(
        "A LoRA adapter is loaded from another path under a name that was in use. Prompts that were asked before get answers "
        "of the former adapter, or of a mixture. A request whose `cache_salt` equals the adapter's name gets its KV, too. No "
        "error."
    ),
    symptoms=(CACHED_PREFIX,),
    cause=(
        "Cached blocks are found by hashes. An adapter's name goes into them as plain text, and its path and number do not. "
        "A `cache_salt` goes into them as plain text, too."
    ),
    correction=(
        "Name and path go into the hashes as a tuple, as in 0.31.0. An adapter that is loaded again from its path keeps its "
        "cache, also if the files there have changed. Servers with a KV connector or KV events stay as they are, since "
        "their hashes have readers elsewhere. The encoder cache of `--enable-tower-connector-lora` goes by names, too: that is "
        "vllm.tower-lora-encoder-cache."
    ),
    upstream=Upstream("vllm-project/vllm", issue=30931),
    hardware="any GPU (LoRA adapters with prefix caching, without a KV connector and without KV events)",
    default=True,
    default_reason=(
        "silent wrong output; 0.31.0 has the same keys. They are made on the host, and nothing but the engine's own cache "
        "reads them"
    ),
    targets=(Target(wrap.preprocess_add_request, needed=wrap.has_adapter, paths=(f"{_CORE}.preprocess_add_request",)),),
    # Keys and hashes of blocks, how a request gets and uses its hasher, and what an adapter is
    witnesses=(
        f"{wrap.UTILS}:_gen_lora_extra_hash_keys",
        f"{wrap.UTILS}:generate_block_hash_extra_keys",
        f"{wrap.UTILS}:get_request_block_hasher",
        f"{_REQUEST}.from_engine_core_request",
        f"{_REQUEST}.append_output_token_ids",
        "vllm.lora.request:LoRARequest",
    ),
    cost=(
        "For a request with an adapter some microseconds, and 0.4 µs of hashing for each block; other requests pay a look of "
        "0.1 µs. An adapter that each load brings to another path starts with a cold cache."
    ),
    avoid=(
        "Load each version of an adapter under a name of its own. If the name must stay, set `--no-enable-prefix-caching`: "
        "every prompt is computed anew."
    ),
    expect=(
        "On one replica, load an adapter, ask a long prompt, load another one from another path under its name, and ask again. "
        "The answer is that of a fresh server. Requests count once their adapter's name has had several paths. Requests "
        "without adapters keep their cache and their bits."
    ),
    stays_out=AnyOf(Is("KV connector", ON), Is("KV events", ON)),
    hits=AllOf(Is("LoRA adapters", ON), Is("prefix caching", ON), Is("adapters change while serving", ON)),
)
