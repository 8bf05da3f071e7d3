"""sglang.draft-kv-context-limit, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import CONTEXT_LIMIT, DIES, SPECULATION

from . import wrap

_ATTENTION = "sglang.srt.layers.attention"
_BACKENDS = (
    f"{_ATTENTION}.flashinfer_backend:FlashInferMultiStepDraftBackend",
    f"{_ATTENTION}.flashinfer_mla_backend:FlashInferMLAMultiStepDraftBackend",
    f"{_ATTENTION}.triton_backend:TritonMultiStepDraftBackend",
)
_KERNEL = "generate_draft_decode_kv_indices"

FIX = Fix(
    id="sglang.draft-kv-context-limit",
    title="Crash or overwritten memory near the context length with EAGLE",
    symptom=(
        "With EAGLE on FlashInfer, the server dies of `AssertionError: EAGLE draft kv_indices row` when a request comes near "
        "the context length. On Triton, and on FlashInfer up to 0.5.12.post1, nothing is said: memory of others is overwritten."
    ),
    symptoms=(DIES, CONTEXT_LIMIT, SPECULATION),
    cause=(
        "Each draft step lists the KV slots of every branch in a row that has room for the context length in each branch. What "
        "has been drafted counts on top of it: where all requests of a batch are within the draft steps of the context length, "
        "the row is too short. Without CUDA graphs, and with --cuda-graph-max-bs 1, one request is enough. From 0.5.13 on "
        "FlashInfer's backends, that of latent attention (MLA) among them, look and refuse. Triton's does not, and before none "
        "did: each row runs into the next, and the last one into memory of others."
    ),
    correction=(
        "Each branch has room for all slots that a request can have, and for a token of each draft step. Where all steps of a "
        "full pool would list 2**30 slots or more, the rows stay as they are: the index kernel reckons in 32 bits."
    ),
    upstream=Upstream("sgl-project/sglang", pull=29696, issue=29695, report="sglang-draft-kv-context-limit-twins"),
    hardware=(
        "any GPU (--attention-backend triton or flashinfer: the latter the default on Ampere and Ada, and on Hopper with "
        "--speculative-eagle-topk above 1); Blackwell with trtllm_mla up to 0.5.12.post1"
    ),
    default_reason="not proven on a GPU yet; upstream closed the change without merging it",
    targets=tuple(Target(wrap.init, needed=wrap.lists_slots, paths=(f"{backend}.__init__",)) for backend in _BACKENDS),
    independent=True,  # a server drafts on one of them
    # What reckons the rows' width, what writes the rows, and what later releases compare
    witnesses=(
        *(
            f"{backend}.{name}"
            for backend in _BACKENDS
            for name in ("common_template", "init_forward_metadata", "init_cuda_graph_state")
        ),
        f"sglang.srt.speculative.eagle_utils:{_KERNEL}",
        f"sglang.srt.speculative.spec_utils:{_KERNEL}",
        f"sglang.srt.speculative.triton_ops.cache_locs:{_KERNEL}",
        f"sglang.kernels.ops.speculative.cache_locs:{_KERNEL}",
        "sglang.srt.speculative.spec_utils:draft_kv_indices_buffer_width",
        "sglang.srt.speculative.spec_utils:draft_kv_indices_used_len",
        "sglang.srt.layers.attention.utils:assert_buffer_fits",
        "sglang.kernels.ops.attention.utils:assert_buffer_fits",
    ),
    remove_when="a release of sglang is served whose rows are wide enough: attnfix then sees it and does nothing",
    cost=(
        "GPU memory, once at start: the buffer of KV indices becomes longer by the draft tokens, the draft steps and up to 19, "
        "as a share of the context length. With 48 requests, topk 4, 5 steps and 8 draft tokens on Triton that is 0.2 MB. No "
        "time per step."
    ),
    avoid=(
        "Set `--speculative-num-steps 1 --speculative-eagle-topk 1 --speculative-num-draft-tokens 2`: no draft step "
        "lists slots; one draft per step, slower decode."
    ),
    expect=(
        "On one replica with EAGLE on FlashInfer and --disable-cuda-graph, send a request that runs up to the context length: "
        "the server stays up. On Triton nothing is to be seen. Other requests are answered as before."
    ),
    harm=CRASH,
    hits=AllOf(
        Is("speculative algorithm", "EAGLE", "EAGLE3", "STANDALONE"),
        Above("speculative steps", 1),
        AnyOf(
            Is("draft decode backend", "flashinfer", "triton"),
            AllOf(Is("draft decode backend", "trtllm_mla"), Is("lists of slots on trtllm_mla", ON)),
        ),
    ),
)
