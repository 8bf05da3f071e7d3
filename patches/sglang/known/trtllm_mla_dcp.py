"""sglang.trtllm-mla-dcp, as data."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES

BUG = KnownBug(
    id="sglang.trtllm-mla-dcp",
    title="Decode context parallelism ends the server where trtllm_mla decodes",
    symptom="The first decode step, or the capture of CUDA graphs, ends where `attn_output, lse` is unpacked.",
    symptoms=(DIES,),
    releases=(">=0.5.15,<0.5.19",),
    code=("sglang.srt.layers.attention.trtllm_mla_backend:TRTLLMMLABackend.forward_decode",),
    upstream=Upstream("sgl-project/sglang", pull=33926),
    hits=AllOf(
        Is("decode backend", "trtllm_mla"),
        Given("--dcp-size"),
        Not(Is("--dcp-size", "1", 1)),
    ),
    avoid="Name flashinfer with --attention-backend.",
    harm=CRASH,
)
