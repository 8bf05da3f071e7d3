"""sglang.draft-kv-wall, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.signs import CONTEXT_LIMIT, DIES, SPECULATION

from . import wrap

_MODULE = "sglang.srt.layers.attention.flashinfer_backend"
_BACKEND = f"{_MODULE}:FlashInferMultiStepDraftBackend"
_KERNEL = "generate_draft_decode_kv_indices"

FIX = Fix(
    id="sglang.draft-kv-wall",
    title="KV indices of draft steps overflow their row near the context length",
    symptom=(
        "With EAGLE on FlashInfer, the server dies of `AssertionError: EAGLE draft kv_indices row` when a request comes near "
        "the context length. Up to 0.5.12.post1 nothing is said: memory of others is overwritten."
    ),
    signs=(DIES, CONTEXT_LIMIT, SPECULATION),
    cause=(
        "Each draft step lists the KV slots of every branch in a row that has room for the context length in each branch. What "
        "has been drafted counts on top of it: where all requests of a batch are within the draft steps of the context length, "
        "the row is too short. Without CUDA graphs, and with --cuda-graph-max-bs 1, one request is enough. From 0.5.13 on the "
        "engine looks, and refuses; before, each row runs into the next, and the last one into memory of others."
    ),
    correction="Each branch has room for all slots that a request can have, and for a token of each draft step.",
    upstream=Upstream("sgl-project/sglang", pull=29696, issue=29695),
    hardware=(
        "any GPU (--attention-backend flashinfer: the default on Ampere and Ada; on Hopper with --speculative-eagle-topk "
        "above 1)"
    ),
    default=False,
    default_reason="not proven on a GPU yet; upstream closed the change without merging it",
    targets=(Target(wrap.init, paths=(f"{_BACKEND}.__init__",)),),
    # What reckons the rows' width, what writes the rows, and what later releases compare
    witnesses=(
        f"{_BACKEND}.common_template",
        f"{_BACKEND}.init_forward_metadata",
        f"{_BACKEND}.init_cuda_graph_state",
        f"sglang.srt.speculative.eagle_utils:{_KERNEL}",
        f"sglang.srt.speculative.spec_utils:{_KERNEL}",
        f"sglang.srt.speculative.triton_ops.cache_locs:{_KERNEL}",
        f"sglang.kernels.ops.speculative.cache_locs:{_KERNEL}",
        "sglang.srt.speculative.spec_utils:draft_kv_indices_buffer_width",
        "sglang.srt.speculative.spec_utils:draft_kv_indices_used_len",
        "sglang.srt.layers.attention.utils:assert_buffer_fits",
    ),
    examined=(">=0.5.1",),
    remove_when="a release of sglang is served whose rows are wide enough: attnfix then sees it and does nothing",
    cost=(
        "GPU memory, once at start: the buffer of KV indices becomes longer by the draft tokens, the draft steps and 4, as a "
        "share of the context length. No time per step."
    ),
    expect=(
        "On one replica with EAGLE on FlashInfer and --disable-cuda-graph, send a request that runs up to the context length: "
        "the server stays up. Other requests are answered as before."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
        Is("attention", "MHA"),
        Is("draft decode backend", "flashinfer"),
    ),
)
