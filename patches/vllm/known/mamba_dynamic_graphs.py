"""vllm.mamba-dynamic-graphs, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Given, Is, Not, Since
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

#: Those with Mamba or short convolutions
_OTHERS = (
    *("FalconMambaForCausalLM", "JambaForCausalLM", "MambaForCausalLM"),
    *("Lfm2ForCausalLM", "Lfm2MoeForCausalLM", "Lfm2VlForConditionalGeneration"),
)
BUG = KnownBug(
    id="vllm.mamba-dynamic-graphs",
    title="A Mamba hybrid with a table of drafts by batch size does not start",
    symptom="An AssertionError without a message ends the server while CUDA graphs are captured.",
    symptoms=(DIES, GRAPHS),
    releases=(">=0.25.0,<=0.33.0",),
    code=("vllm.v1.attention.backends.mamba_attn:BaseMambaAttentionMetadataBuilder.build_for_cudagraph_capture",),
    upstream=Upstream("vllm-project/vllm", report="vllm-mamba-dynamic-graphs"),
    hits=AllOf(
        AnyOf(Is("Mamba2 layers", ON), Is("architecture", *_OTHERS)),
        Is("model runner", "V2"),
        Given("--speculative-config.num_speculative_tokens_per_batch_size"),
        Is("full CUDA graphs", ON),
        Not(AllOf(Since("0.26.0"), Above("data parallel ranks", 1))),  # the table is dropped there
    ),
    avoid="Give one number of drafts, as `num_speculative_tokens`.",
    harm=CRASH,
)
