"""vllm.dense-dp-engine-id, as data."""

from attnfix.compat.doctor.condition import Above, AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE, PARALLEL

BUG = KnownBug(
    id="vllm.dense-dp-engine-id",
    title="Decode servers read KV of another data-parallel rank of the prefill server (dense models, NIXL)",
    symptom="With P/D, answers are garbage: all ranks of a dense model have one engine id, and the first that was met is read.",
    symptoms=(PARALLEL, GARBAGE),
    releases=(">=0.14.0,<0.15.0",),
    code=("vllm.v1.engine.core:EngineCoreProc.run_engine_core",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Above("data parallel ranks", 1),
        Is("--kv-transfer-config.kv_connector", "NixlConnector"),
        Unseen("a model without experts"),
    ),
    avoid="Start each rank as a server of its own, without `--data-parallel-size`.",
)
