"""vllm.nixl-llama4-windows, as data."""

from attnfix.compat.doctor.condition import AllOf, Is, Unseen
from attnfix.compat.fix import Upstream
from attnfix.compat.known_bug import KnownBug
from attnfix.compat.symptoms import GARBAGE

BUG = KnownBug(
    id="vllm.nixl-llama4-windows",
    title="Llama 4 answers garbage over NIXL where prefill and decode servers have other numbers of KV blocks",
    symptom="Answers are garbage from the first token on: regions of each server are counted by the other one's blocks.",
    symptoms=(GARBAGE,),
    releases=(">=0.11.1,<0.16.0",),
    code=("vllm.distributed.kv_transfer.kv_connector.v1.nixl_connector:NixlConnectorWorker._read_blocks",),
    upstream=Upstream("vllm-project/vllm"),
    hits=AllOf(
        Is("architecture", "Llama4ForConditionalGeneration"),
        Is("name of the KV connector", "NixlConnector"),
        Unseen("a partner whose KV cache has another number of blocks"),
    ),
    avoid="Set the same `--num-gpu-blocks-override` and `--block-size` on both servers.",
)
