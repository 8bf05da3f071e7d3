"""vllm.dflash-odd-batch, as data."""

from attnfix.compat.doctor.condition import OFF, AllOf, AnyOf, Given, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, GRAPHS, SPECULATION

BUG = KnownBug(
    id="vllm.dflash-odd-batch",
    title="DFlash does not start with some values of --max-num-seqs: a graph outgrows the drafter's buffers",
    symptom="`expected size 132==136` at startup: a step of drafts is padded beyond the buffer of its positions.",
    symptoms=(DIES, SPECULATION, GRAPHS),
    releases=(">=0.20.0,<0.27.0",),
    code=("vllm.v1.spec_decode.dflash:DFlashProposer.__init__",),
    upstream=Upstream("vllm-project/vllm", pull=50065),
    harm=CRASH,
    hits=AllOf(
        AnyOf(
            Is("--speculative-config.method", "dflash"),
            AllOf(Is("--speculative-config.method", OFF), Given("--speculative-config.model"), Unseen("a DFlash drafter")),
        ),
        Is("model runner", "V1"),
        Is("--enforce-eager", OFF),
        Unseen("`--max-num-seqs` times one more than the drafts that is no size of a graph, such as 33 times 4"),
    ),
    avoid="Start with a `--max-num-seqs` that 16 divides, or with `--enforce-eager`.",
)
