"""vllm.dense-dp-engine-id, as data."""

from attnfix.compat.doctor.condition import OFF, Above, AllOf, Given, Is, Not, Unseen
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
        Is("name of the KV connector", "NixlConnector"),
        Is("experts", OFF),
        Not(Given("--data-parallel-rank")),  # each has an engine id of its own
        Unseen("a server that prefills for others"),
    ),
    avoid="Start each rank as a server of its own, without `--data-parallel-size`.",
)
