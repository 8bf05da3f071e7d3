"""sglang.dsa-short-prompt-keys, as data. On one H200, the kernel of 0.5.9 rotated up to 41 % of 16,000 keys twice; those of
0.5.10 to 0.5.18 rotated each once, although the aliased call is there until 0.5.19."""

from attnfix.compat.doctor.condition import AllOf, Given, Is, Not, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import CACHED_PREFIX, LONG_PROMPT

BUG = KnownBug(
    id="sglang.dsa-short-prompt-keys",
    title="DeepSeek-V3.2 and GLM-5 lose some tokens of short prompts once a conversation passes 2048 tokens",
    symptom="Large batches of short prompts store some index keys rotated twice, and the indexer does not find them later.",
    symptoms=(LONG_PROMPT, CACHED_PREFIX),
    releases=(">=0.5.5,<0.5.10",),
    code=("sglang.srt.layers.attention.nsa.nsa_indexer:Indexer._get_k_bf16",),
    upstream=Upstream("sgl-project/sglang"),
    hits=AllOf(
        Is("GPU", "NVIDIA"),
        Is("attention", "sparse MLA"),
        Not(Given("--enable-nsa-prefill-context-parallel")),
        Unseen("prefill batches of thousands of tokens, all before token 2048 of requests that grow beyond it"),
    ),
    avoid="Nothing within the release is sure to avoid it; take release 0.5.10.",
)
