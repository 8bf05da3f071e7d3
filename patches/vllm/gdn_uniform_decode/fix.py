"""vllm.gdn-uniform-decode, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import Fix, Target, Upstream, WorstCost
from attnfix.compat.symptoms import GARBAGE, SPECULATION

from . import wrap

_RUNNER = "vllm.v1.worker.gpu_model_runner:GPUModelRunner"
_GDN = "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder"

FIX = Fix(
    id="vllm.gdn-uniform-decode",
    title="Garbage for prompts with one token more than there are drafts (Gated DeltaNet)",
    symptom=(
        "With speculative decoding, a model with Gated DeltaNet layers (Qwen3-Next, Qwen3.5) answers a prompt of exactly "
        "num_speculative_tokens + 1 tokens with garbage, every time. A longer prompt is hit when exactly so many tokens of it "
        "are left: behind a prefix-cache hit, or in a last prefill chunk. No error."
    ),
    symptoms=(SPECULATION, GARBAGE),
    cause=(
        "A batch counts as a decode step by its shape alone. Such a prefill is run in the full CUDA graph of verification, "
        "which finds the state of each request by indices that a prefill does not set: its recurrent state is never written, "
        "or another's is. Decodes that share the step lose theirs, too."
    ),
    correction=(
        "Where a request of a hybrid model has nothing but known tokens to compute, the runner is told that the batch is no "
        "decode step, and takes the path of prefills of any other length. Model Runner V2, right from 0.28.0, is left alone."
    ),
    upstream=Upstream("vllm-project/vllm", issue=49918, report="vllm-gdn-uniform-decode"),
    hardware="any GPU (hybrid models with speculative decoding and full CUDA graphs; the V1 model runner)",
    default=True,
    default_reason="silent wrong output; proven with real kernels on an H200 (0.25.1)",
    targets=(
        Target(
            wrap.determine_batch_execution_and_padding,
            needed=wrap.has_the_shape_of_a_decode_step,
            paths=(f"{_RUNNER}._determine_batch_execution_and_padding",),
        ),
    ),
    # What the shape is compared with, and whose buffers a prefill leaves as they are
    witnesses=(
        f"{_RUNNER}._is_uniform_decode",
        f"{_RUNNER}._pad_for_sequence_parallelism",
        f"{_GDN}.build",
        f"{_GDN}._stage_spec_decode",
        f"{_GDN}.build_for_cudagraph_capture",
        "vllm.v1.attention.backends.utils:split_decodes_and_prefills",
        "vllm.forward_context:BatchDescriptor",
    ),
    # 0.11.0-0.11.2 compare the shape in the middle of execute_model: there is nothing to correct around
    examined=(">=0.12.0",),
    remove_when="vLLM's V1 model runner is gone, or asks whether a request is prefilled",
    cost=(
        "A few µs of host time per step of a hybrid model with speculative decoding; none otherwise. A step that is corrected "
        "runs without the graph of decodes that stock takes for it."
    ),
    worst_cost=WorstCost(0.382, 0.36, 0.406, "every prompt has num_speculative_tokens + 1 tokens", "h100-vllm-0.33.0"),
    avoid=(
        "Start with `--compilation-config.cudagraph_mode PIECEWISE`: no full graph of verification is replayed; "
        "decode gets slower."
    ),
    expect=(
        "On one replica with num_speculative_tokens 3, send a prompt of four tokens, such as `The capital of France`: stock "
        "the answer is garbage, fixed it is that of --enforce-eager."
    ),
    look_does="its look keeps what it found on an object of the engine",
    hits=AllOf(
        Is("linear attention", ON),
        Is("speculative decoding", ON),
        Is("full CUDA graphs", ON),
        Is("model runner", "V1"),
    ),
    ranks_alike=True,
)
