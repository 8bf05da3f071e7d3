"""vllm.cutlass-mla-graphs, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS

BUG = KnownBug(
    id="vllm.cutlass-mla-graphs",
    title="No server starts with full CUDA graphs on CUTLASS_MLA",
    symptom="The start ends in `CUDAGraphMode.FULL is not supported with CutlassMLAMetadataBuilder`, or the like.",
    symptoms=(DIES, GRAPHS),
    releases=(">=0.10.1,<0.10.1.1",),
    code=("vllm.v1.attention.backends.mla.cutlass_mla:CutlassMLAMetadataBuilder",),
    upstream=Upstream("vllm-project/vllm", pull=23200),
    hits=AllOf(
        Is("attention", "MLA"),
        Is("attention backend", "CUTLASS_MLA"),
        Not(Given("--enforce-eager")),
        AnyOf(
            Is("--compilation-config.cudagraph_mode", "FULL"),
            Given("--compilation-config.full_cuda_graph"),
            AllOf(
                Is("--compilation-config.cudagraph_mode", "FULL_AND_PIECEWISE", "FULL_DECODE_ONLY"),
                Is("speculative decoding", OFF),
            ),
        ),
    ),
    avoid="Leave `cudagraph_mode` out: the default is PIECEWISE.",
    harm=CRASH,
)
