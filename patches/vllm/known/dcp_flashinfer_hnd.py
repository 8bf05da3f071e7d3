"""vllm.dcp-flashinfer-hnd, as data."""

from attnfix.compat.doctor.condition import ON, Above, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.dcp-flashinfer-hnd",
    title="New tokens' keys are read in another layout with decode context parallelism (FLASHINFER, HND)",
    symptom="Prompts are garbage, or FlashInfer reports a mismatch of heads and the server ends.",
    symptoms=(DIES, GARBAGE, PARALLEL),
    releases=(">=0.11.1,<0.22.0",),
    code=("vllm.v1.attention.backends.flashinfer:BatchDCPPrefillWrapper.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=38895),
    hits=AllOf(
        Is("attention", "MHA"),
        Is("attention backend", "FLASHINFER"),
        Above("decode context parallel size", 1),
        AnyOf(
            Is("compute capability", 100, 103),
            Is("$VLLM_KV_CACHE_LAYOUT", "HND"),
            Is("--kv-transfer-config.kv_connector", "NixlConnector"),
            AllOf(Is("KV connector", ON), Unseen("a connector that asks for the layout HND")),
        ),
    ),
    avoid="Start with `--attention-backend FLASH_ATTN`, where its layout serves.",
)
