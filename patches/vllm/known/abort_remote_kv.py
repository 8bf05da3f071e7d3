"""vllm.abort-remote-kv, as data."""

from attnfix.compat.doctor.condition import AllOf, AnyOf, Given, Is, Not, Since, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, SHARED_BATCH

BUG = KnownBug(
    id="vllm.abort-remote-kv",
    title="A client that hangs up garbles another request: its KV still arrives in blocks that were freed",
    symptom=(
        "With P/D or an external KV cache, answers turn into garbage after a client disconnected. The load of its KV goes on "
        "into blocks that another request has."
    ),
    symptoms=(SHARED_BATCH, GARBAGE),
    releases=(">=0.10.0,<0.16.0",),
    code=("vllm.v1.core.sched.scheduler:Scheduler.finish_requests",),
    upstream=Upstream("vllm-project/vllm", pull=32255),
    hits=AllOf(
        AnyOf(
            Is("--kv-transfer-config.kv_connector", "NixlConnector", "OffloadingConnector", "LMCacheMPConnector"),
            Is("--kv-transfer-config.kv_connector", "MooncakeConnector", "MoRIIOConnector", "MultiConnector"),
            AllOf(Since("0.14.0"), Given("--kv-offloading-size"), Not(Is("--kv-offloading-backend", "lmcache"))),
        ),
        Unseen("requests that are aborted while their KV is loaded"),
    ),
    avoid="Nothing within the release avoids it; let clients wait for answers.",
)
