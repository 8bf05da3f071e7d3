"""sglang.dflash-verify-ranks, as data."""

from attnfix.compat.doctor.condition import ON, AllOf, AnyOf, Is, Unseen
from attnfix.compat.fix import CRASH, Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import DIES, PARALLEL, SPECULATION

_INFO, _WORKER = (f"sglang.srt.speculative.dflash_{name}" for name in ("info", "worker_v2"))

BUG = KnownBug(
    id="sglang.dflash-verify-ranks",
    title="The server hangs with DFLASH or DSPARK on several GPUs: ranks accept different numbers of drafts",
    symptom="All requests stop in the middle of their text: each rank verifies by itself, and rounding divides them.",
    symptoms=(DIES, PARALLEL, SPECULATION),
    releases=(">=0.5.11,<0.5.19",),
    code=(f"{_INFO}:DFlashVerifyInput.verify", f"{_WORKER}:DFlashWorkerV2.forward_batch_generation"),
    upstream=Upstream("sgl-project/sglang", pull=33614),
    hits=AllOf(
        Is("speculative algorithm", "DFLASH", "DSPARK"),
        Is("ranks that share a layer", ON),
        AnyOf(Is("--enable-dp-attention", "off"), Unseen("whether --tp-size is larger than --dp-size")),
    ),
    avoid="Leave --tp-size at 1, or set no --speculative-algorithm.",
    harm=CRASH,
)
