"""sglang.mamba2-track-tail, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream
from attnfix.compat.symptoms import CACHED_PREFIX, GRAPHS

from . import wrap

_LINEAR = "sglang.srt.layers.attention.hybrid_linear_attn_backend"

FIX = Fix(
    id="sglang.mamba2-track-tail",
    title="Mamba2 hybrids forget or mix conversations (decode in CUDA graphs)",
    symptom=(
        "NemotronH, Falcon-H1 and Granite hybrid models forget or mix conversations. The next turn continues from a state that "
        "a decode step cached for another request. The answer that is being decoded is right. No error."
    ),
    symptoms=(CACHED_PREFIX, GRAPHS),
    cause=(
        "A captured decode step saves states to the last entries of a buffer that is made for the largest graph. The batch's "
        "own entries are the first ones. In a smaller graph the states go to slots of requests that were in larger batches."
    ),
    correction="At capture and replay, the layers are given the entries of the batch alone, as in later releases.",
    upstream=Upstream("sgl-project/sglang", pull=32555),
    hardware="any GPU (hybrid models with Mamba2 layers, CUDA graphs, radix cache and extra_buffer, all by default)",
    default=True,
    default_reason="silent wrong output that stays in the cache; fixed upstream in the same way",
    targets=(
        Target(
            wrap.init_forward_metadata_out_graph,
            needed=wrap.holds_more,
            paths=(f"{_LINEAR}:Mamba2AttnBackend.init_forward_metadata_out_graph",),
        ),
    ),
    # Who makes the buffer and hands it out, what passes it on, and who takes entries of it
    witnesses=(
        f"{_LINEAR}:MambaAttnBackendBase.init_cuda_graph_state",
        f"{_LINEAR}:MambaAttnBackendBase._replay_metadata",
        f"{_LINEAR}:Mamba2AttnBackend.forward",
        "sglang.srt.layers.attention.mamba.mamba2_metadata:Mamba2Metadata.prepare_decode",
        "sglang.srt.model_executor.forward_batch_info:ForwardMode.is_target_verify",
    ),
    cost="One view of a tensor per decode step.",
    avoid=(
        "Set `--mamba-track-interval` above the context length, a multiple of the page size: decode saves no states; "
        "answers are not cached, prompts are."
    ),
    expect=(
        "On one replica, let a few conversations of some hundred answered tokens run at once and send their next turns: stock, "
        "some continue somebody else's text or ignore what was said; fixed, they go on as with --disable-radix-cache."
    ),
    hits=AllOf(Is("Mamba2 layers", ON), Is("tracked Mamba states", ON), Is("CUDA graphs", ON)),
)
