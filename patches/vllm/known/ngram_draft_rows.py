"""vllm.ngram-draft-rows, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import SLOWER, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import SHARED_BATCH, SPECULATION

BUG = KnownBug(
    id="vllm.ngram-draft-rows",
    title="n-gram drafts go to the wrong requests while prompts are prefilled beside them",
    symptom="The acceptance rate of n-gram drafts falls under load, and some requests get none. Texts stay right.",
    symptoms=(
        SPECULATION,
        SHARED_BATCH,
    ),
    releases=(">=0.11.0,<0.12.0",),
    code=("vllm.v1.spec_decode.ngram_proposer:batch_propose_numba",),
    upstream=Upstream("vllm-project/vllm", pull=29779),
    hits=AllOf(
        Is("--speculative-config.method", "ngram"), Unseen("steps that hold a part of a prompt beside requests that decode")
    ),
    avoid="Nothing within the release avoids it; take release 0.12.0.",
    harm=SLOWER,
)
