"""sglang.mamba-verify-clear, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import GARBAGE, SPECULATION

from . import wrap

_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend:MambaAttnBackendBase"
_BATCH = "sglang.srt.managers.schedule_batch:ScheduleBatch"

FIX = Fix(
    id="sglang.mamba-verify-clear",
    title="Hybrid models answer garbage with speculation outside CUDA graphs: each step resets their states",
    symptom="Each verification zeroes the recurrent state, or sets it back to the cached prefix, as the prefill did.",
    symptoms=(GARBAGE, SPECULATION),
    cause=(
        "States of new requests are cleared, or copied from a cached prefix, before their prompts run. The batch keeps the "
        "list of them until a request of it ends, and a verification outside CUDA graphs goes by it again."
    ),
    correction="A verification clears and copies no state. Prompts and their chunks do as before.",
    upstream=Upstream("sgl-project/sglang", pull=27095),
    hardware="any GPU (hybrid models with speculative decoding, without CUDA graphs or with more requests than they hold)",
    default=True,
    default_reason="silent wrong output; fixed upstream in the same way",
    targets=(
        Target(
            wrap.execute_deferred_mamba_cow_and_clear,
            needed=wrap.verifies_with_a_prompts_slots,
            paths=(f"{_LINEAR}._execute_deferred_mamba_cow_and_clear",),
        ),
    ),
    # Who clears and copies before which step, and how long a batch says what
    witnesses=(
        f"{_LINEAR}.init_forward_metadata",
        "sglang.srt.layers.attention.hybrid_linear_attn_backend:Mamba2AttnBackend.init_forward_metadata",
        f"{_BATCH}._collect_deferred_mamba_cow_and_clear",
        f"{_BATCH}.prepare_for_decode",
        f"{_BATCH}.filter_batch",
        f"{_BATCH}.merge_batch",
        "sglang.srt.mem_cache.memory_pool:MambaPool.clear_slots",
        "sglang.srt.mem_cache.memory_pool:MambaPool.copy_from",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_extend",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_target_verify",
    ),
    hits=AllOf(
        Is("recurrent layers", ON),
        Is("speculative decoding", ON),
        Is("verification outside CUDA graphs", ON),
    ),
    cost="A look at host values for each verification outside CUDA graphs; a copy of the batch object where it is corrected.",
    avoid="Leave CUDA graphs on, and set `--max-running-requests` no higher than the largest batch that they hold.",
    expect=(
        "On one replica with --disable-cuda-graph, ask at temperature 0: stock answers garbage; fixed, the answers are those "
        "without speculation."
    ),
)
