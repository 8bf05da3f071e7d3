"""Switches reach the workers of a real Ray cluster of two nodes that import a real engine release, and these workers are on the
driver's metrics page, where they share its folder of records."""

from __future__ import annotations

import json

import pytest

from attnfix.patches.catalogue import BY_ID

#: A cluster of two nodes on this machine, started before the driver's switches are set: as on hosts of their own. Ray's workers
#: get the stubs of packages that a machine without a GPU lacks, as every process does that imports an engine in these tests.
HEAD = """
import inspect, json, os, sys
from ray.cluster_utils import Cluster
import ray
from attnfix.prove import stubs
engine, module, switches = *sys.argv[1:3], json.loads(sys.argv[3])
def stub(): stubs.install(engine)
def states():
    import attnfix, importlib, os, ray
    from attnfix.compat.status import process_record
    importlib.import_module(module)
    mine = [record for record in process_record.read_all() if record["pid"] == os.getpid()]
    return {"node": ray.get_runtime_context().get_node_id(), "records": len(mine),
            "states": {row["fix"]: row["state"] for row in attnfix.status()},
            "seen": {name: value for name, value in os.environ.items() if name in switches}}
cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False, "resources": {"node0": 2}})
cluster.add_node(num_cpus=1, resources={"node1": 2})
cluster.wait_for_nodes()
os.environ.update(switches)
ray.init(address=cluster.address, runtime_env={"worker_process_setup_hook": stub}, log_to_driver=False)
stub()
"""
TAIL = """
from attnfix.compat.status import metrics, process_record
alive = {record["pid"] for record in process_record.read_all() if record["alive"]}
page = [sample.value for family in metrics.families() for sample in family.samples if sample.name == "attnfix_processes"]
print("\\nANSWER" + json.dumps([list(stock), answers, sum(page) - (os.getpid() in alive)]))
ray.shutdown()
cluster.shutdown()
"""
#: What vLLM's Ray executor does with its workers before they load a model, by the engine's own functions
VLLM_WORKERS = """
from vllm.v1.executor import ray_executor
from vllm.v1.executor.ray_utils import RayWorkerWrapper
names = ray_executor.get_env_vars_to_copy
stock, names = [ask(exclude_vars={"LOCAL_RANK"}, destination="workers") for ask in (names.__wrapped__, names)]
variables = {name: os.environ[name] for name in names if name in os.environ}
workers = [ray.remote(num_cpus=1, resources={f"node{rank}": 1})(RayWorkerWrapper).remote(rpc_rank=rank) for rank in (0, 1)]
ray.get([worker.update_environment_variables.remote([variables, variables]) for worker in workers])
answers = ray.get([worker.execute_method.remote(lambda self: states()) for worker in workers])
"""
#: vLLM's engine cores of data parallel deployments: actors with a runtime environment of the same names
VLLM_ENGINE_CORES = """
from vllm.v1.engine import utils
names = utils.get_env_vars_to_copy
stock, names = [ask(destination="DPEngineCoreActor") for ask in (names.__wrapped__, names)]
runtime_env = {"env_vars": {name: os.environ[name] for name in names if name in os.environ}}
tasks = [ray.remote(num_cpus=1, resources={f"node{rank}": 1}, runtime_env=runtime_env)(states) for rank in (0, 1)]
answers = ray.get([task.remote() for task in tasks])
"""
#: sglang's scheduler actors, made as its Ray engine makes them; without a model, so without their own `__init__`
SGLANG_SCHEDULERS = """
from sglang.srt.ray.scheduler_actor import SchedulerActor
stock = []
scheduler = SchedulerActor.__ray_metadata__.modified_class
needed = [name for name in inspect.signature(scheduler.__init__).parameters if name[0] != "_" and name != "self"]
scheduler.__init__ = lambda self, **given: None
scheduler.get_info = lambda self: states()
actors = [SchedulerActor.options(num_cpus=1, resources={f"node{rank}": 1}).remote(**dict.fromkeys(needed)) for rank in (0, 1)]
answers = ray.get([actor.get_info.remote() for actor in actors])
"""


@pytest.fixture
def on_two_nodes(engine_python, tmp_path):
    """`on_two_nodes(engine, release, body, module, switches)`: what `states()` saw on each node."""

    def run(engine, release, body, module, switches):
        environment = engine_python(engine, release)
        script = tmp_path / "driver.py"
        script.write_text(HEAD + body + TAIL)
        settings = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0", "ATTNFIX_RUN_DIR": str(tmp_path / "run")}
        done = environment.run(str(script), engine, module, json.dumps(switches), **settings)
        (line,) = [line for line in done.stdout.splitlines() if line.startswith("ANSWER")]
        stock, answers, workers_on_page = json.loads(line[len("ANSWER") :])
        assert not switches.keys() & set(stock), "the engine copies them by itself: this proves nothing"
        assert len({answer["node"] for answer in answers}) == 2
        if "ATTNFIX" not in switches:
            assert workers_on_page == len(answers)
        return answers

    return run


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "engine, release, body, module, fix",
    [
        ("vllm", "0.14.0", VLLM_WORKERS, "vllm.v1.attention.backends.mla.common", "vllm.lse-log-base"),
        (
            "vllm",
            "0.25.1",
            VLLM_ENGINE_CORES,
            "vllm.model_executor.layers.attention.mla_attention",
            "vllm.quantized-mla-context",
        ),
        ("sglang", "0.5.13", SGLANG_SCHEDULERS, "sglang.srt.layers.attention.trtllm_mla_backend", "sglang.lse-log-base"),
    ],
    ids=["vllm-workers", "vllm-engine-cores", "sglang-schedulers"],
)
def test_workers_of_both_nodes_have_the_drivers_switches(on_two_nodes, engine, release, body, module, fix):
    switches = {BY_ID[fix].switch: "0"}
    for answer in on_two_nodes(engine, release, body, module, switches):
        assert answer["seen"] == switches
        assert answer["states"][fix] == "off"
        assert answer["records"] == 1


def test_a_driver_that_is_switched_off_switches_its_workers_off(on_two_nodes):
    module = "vllm.model_executor.layers.attention.mla_attention"
    for answer in on_two_nodes("vllm", "0.25.1", VLLM_WORKERS, module, {"ATTNFIX": "0"}):
        assert set(answer["states"].values()) == {"off"}
