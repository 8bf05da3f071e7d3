"""sglang.lora-prefix-key, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX

from . import wrap

FIX = Fix(
    id="sglang.lora-prefix-key",
    title="A base request whose `extra_key` ends in a LoRA adapter's id shares the adapter's KV",
    symptom=(
        "A client sends an `extra_key`, or up to 0.5.17 a `cache_salt`, that ends in the id of a LoRA adapter. Requests of the "
        "base model then get answers computed with the adapter's KV, and requests of the adapter get the base model's. No "
        "error. From 0.5.12 the id of an adapter of `--lora-paths` follows from its name and path. From 0.5.16 a decode server "
        "sends such keys itself: retracted requests are prefilled again, without their adapter."
    ),
    symptoms=(CACHED_PREFIX,),
    cause=(
        "The radix cache finds KV by tokens and one key. The key of a request with an adapter is its `extra_key` and the "
        "adapter's id, written one behind the other. A request without an adapter may have the same key."
    ),
    correction=(
        "A key that ends in 32 hex digits, as an adapter's id does, gets a NUL behind it if the request has no adapter. Keys "
        "of adapters stay, and so does every cache. Servers whose keys have readers elsewhere stay as they are: HiCache "
        "storage, KV events, LMCache, FlexKV, other radix caches. Up to 0.5.19, HiCache storage finds KV by tokens alone, so "
        "that adapters share it. Such storage stays as it is, and so does the adapter that a second prefill leaves out."
    ),
    upstream=Upstream("sgl-project/sglang", issue=24638),
    hardware="any GPU (LoRA adapters with the radix cache, without HiCache storage and without KV events)",
    default_reason=("upstream has released no change. Clients reach it with the id of an adapter, which they seldom know"),
    targets=(
        Target(
            wrap.init,
            needed=wrap.looks_like_an_adapters,
            paths=("sglang.srt.managers.schedule_batch:Req.__init__",),
        ),
    ),
    # An adapter's id, the cache's key, and the launch of the server
    witnesses=(
        "sglang.srt.lora.lora_registry:LoRARef",
        "sglang.srt.mem_cache.radix_cache:RadixKey",
        "sglang.srt.server_args:get_global_server_args",
        "sglang.srt.runtime_context:get_server_args",
    ),
    cost=(
        "A look at two arguments for each request. No request loses a cached token that is its own. One exception: a base "
        "request with such a key, whose decode server sends it to prefill again."
    ),
    avoid="Set `--disable-radix-cache`: every prompt is computed anew.",
    expect=(
        "On one replica, ask a long prompt of an adapter, then of the base model with the adapter's id as `extra_key`. The "
        "second one reports no cached tokens. Requests without an adapter count if their key ends in 32 hex digits."
    ),
    ranks_alike=True,  # each has its own radix cache, and how much of a prompt is computed follows from it
    stays_out=Is("readers of cache keys", ON),
    hits=AllOf(Is("LoRA adapters", ON), Is("radix cache", ON), Is("keys that end in an adapter's id", ON)),
)
