"""vllm.gdn-fewer-drafts, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is
from attnfix.compat.fix import CRASH, Fix, Target, Upstream
from attnfix.compat.symptoms import DIES, GARBAGE, SPECULATION

from . import wrap

_BUILDER = "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadataBuilder"

FIX = Fix(
    id="vllm.gdn-fewer-drafts",
    title="Qwen3-Next dies, or mixes up tokens, where requests verify different numbers of drafts",
    symptom="A shape error ends the engine, or answers turn into garbage, when a grammar rejects drafts or a step runs full.",
    symptoms=(DIES, SPECULATION, GARBAGE),
    cause=(
        "Verified tokens are shared out evenly among requests before their convolution, and the builder counts all drafts of "
        "the server for each of them. Buffers of full graphs, which such a step does not use, cut off requests."
    ),
    correction=(
        "Where a request has fewer drafts than the server, requests with as many tokens go through the convolution together. "
        "Tokens are counted, and the step gets no buffers of graphs."
    ),
    upstream=Upstream("vllm-project/vllm", pull=24957, issue=24881),
    hardware="any GPU (Qwen3-Next with speculative decoding)",
    default=True,
    default_reason="a crash, or silent wrong output; upstream corrected the same in 0.11.0",
    harm=CRASH,
    targets=(
        Target(wrap.build, needed=wrap.may_have_fewer_drafts, paths=(f"{_BUILDER}.build",)),
        Target(
            wrap.forward,
            needed=wrap.is_marked,
            paths=("vllm.model_executor.models.qwen3_next:Qwen3NextGatedDeltaNet._forward",),
        ),
    ),
    # Whether the kernel takes requests of different lengths
    witnesses=(
        f"{_BUILDER}.__init__",
        "vllm.v1.attention.backends.gdn_attn:GDNAttentionMetadata",
        "vllm.model_executor.layers.mamba.ops.causal_conv1d:causal_conv1d_update",
    ),
    cost=(
        "In a step that it corrects, a copy of few numbers from the GPU, where stock waits for it several times anyway, and "
        "five launches a layer for each number of drafts. A few µs of host time in other steps with drafts."
    ),
    look_does="The look of a layer goes by what the correction of the step's metadata has left there.",
    avoid="Set `num_speculative_tokens` to 1, or take release 0.11.0.",
    expect="On one replica with two drafts, ask for structured output beside other requests. Fixed, the engine goes on.",
    hits=AllOf(
        Is("architecture", "Qwen3NextForCausalLM"),
        Is("speculative decoding", ON),
        Is("draft tokens of a step", "several"),
    ),
)
