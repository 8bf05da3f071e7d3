"""sglang.dsa-verify-skip, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import LONG_PROMPT, SPECULATION

BUG = KnownBug(
    id="sglang.dsa-verify-skip",
    title="Wrong text of DeepSeek V3.2 with MTP beyond 2048 tokens of context (CUDA graphs)",
    symptom="Graphs of a verification keep the short cut for short contexts, and pick the tokens of long ones at random.",
    symptoms=(SPECULATION, LONG_PROMPT),
    releases=(">=0.5.5,<0.5.5.post1",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer.forward_cuda",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("architecture", "DeepseekV32ForCausalLM"),
        Is("speculative decoding", "on"),
        Is("CUDA graphs", ON),
        Unseen("whether contexts are longer than 2048 tokens"),
    ),
    avoid="Leave --speculative-algorithm out, or set --disable-cuda-graph.",
)
