"""vllm.dflash-odd-batch, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SPECULATION

BUG = KnownBug(
    id="vllm.dflash-odd-batch",
    title="DFlash does not start with an odd number of requests: the drafter's buffers are shorter than a graph",
    symptom="`expected size 132==136` at startup: a step of drafts is padded beyond the buffer of its positions.",
    symptoms=(DIES, SPECULATION, GRAPHS),
    releases=(">=0.20.0,<0.27.0",),
    code=("vllm.v1.spec_decode.dflash:DFlashProposer.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=50065),
    harm=CRASH,
    hits=AllOf(
        Is("--speculative-config.method", "dflash"),
        Is("model runner", "V1"),
        Unseen("`--max-num-seqs` times one more than the drafts that is no size of a graph, as with odd numbers"),
    ),
    avoid="Start with an even `--max-num-seqs`, or with `--enforce-eager`.",
)
