"""sglang.draft-kv-indices, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, SPECULATION

from . import wrap

_BACKEND = "sglang.srt.layers.attention.flashinfer_backend:FlashInferMultiStepDraftBackend"
_KERNEL = "generate_draft_decode_kv_indices"

FIX = Fix(
    id="sglang.draft-kv-indices",
    title="Fewer drafts accepted, or a crash, with EAGLE and topk above 1",
    symptom=(
        "With EAGLE and --speculative-eagle-topk above 1, fewer draft tokens are accepted as requests grow longer. Now and "
        "then the server dies with `vectorized_gather_kernel: index out of bounds` or an illegal memory access."
    ),
    symptoms=(SPECULATION, DIES),
    cause=(
        "Each draft step lists the KV slots of every branch in a row of one buffer, which for CUDA graphs is max_bs * "
        "max_context_len wide. The index kernel writes topk times as much: once topk times the sum of the sequence lengths "
        "exceeds the width, each row runs into the next, and the last ones into memory of others. Without graphs it is right."
    ),
    correction=(
        "The rows are topk * (max_context_len + speculative_num_steps) indices wide per request. Upstream's width, without "
        "the drafted tokens, is too small where a full batch comes within them of the context length."
    ),
    upstream=Upstream("sgl-project/sglang", pull=27338, issue=26340),
    hardware=(
        "any GPU (--attention-backend flashinfer: on Hopper the default for EAGLE, EAGLE3 and STANDALONE with "
        "--speculative-eagle-topk above 1)"
    ),
    default=True,
    default_reason="silent memory corruption; fixed upstream in the same way",
    targets=(Target(wrap.init_cuda_graph_state, needed=wrap.has_branches, paths=(f"{_BACKEND}.init_cuda_graph_state",)),),
    # What takes the rows' width for a stride, what writes them, and what later releases reckon the width with
    witnesses=(
        f"{_BACKEND}.common_template",
        "sglang.srt.layers.attention.flashinfer_backend:FlashInferAttnBackend.init_cuda_graph_state",
        f"sglang.srt.speculative.eagle_utils:{_KERNEL}",
        f"sglang.srt.speculative.spec_utils:{_KERNEL}",
        f"sglang.srt.speculative.triton_ops.cache_locs:{_KERNEL}",
        f"sglang.kernels.ops.speculative.cache_locs:{_KERNEL}",
        "sglang.srt.speculative.spec_utils:draft_kv_indices_buffer_width",
    ),
    cost=(
        "GPU memory, once at start: the buffer, 4 bytes * speculative_num_steps * max_bs * max_context_len, becomes topk times "
        "as large. With 5 steps, topk 4, 48 requests and 131072 tokens of context: 503 MB instead of 126 MB. If the growth "
        "takes more than a quarter of the memory that is left for graphs and activations, the engine keeps its own buffer and "
        "the fix disarms itself, aloud: lower --cuda-graph-max-bs or --mem-fraction-static. No time per step."
    ),
    avoid=(
        "Set `--speculative-eagle-topk 1` beside `--speculative-num-steps`: rows fit without branches; fewer drafts "
        "are accepted than in a tree."
    ),
    expect=(
        "On one replica under load with long requests, compare the accept length that the engine logs (`accept len`): it "
        "should be as high as with --disable-cuda-graph. The text keeps its distribution: every token is verified."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative topk", 1),
        Above("speculative steps", 1),
        Is("attention", "MHA"),
        Is("draft decode backend", "flashinfer"),
        Is("CUDA graphs", ON),
    ),
)
