"""A patched server beside a stock one at one store of KV: no pair is worse than two stock servers.

The store is a folder: ExampleConnector's of vLLM, HiCache's of sglang. One server fills it and ends, another one of the same
kind or the other reads from it, in all four pairs. The model's YaRN settings are those that a fix corrects in servers alone: it
has to leave these be, since a reader would rotate queries otherwise than keys were. Needs one GPU of the Hopper generation;
three minutes an engine.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.gpu.serving import answers, cases, models, processes
from tests.gpu.serving.cases import OFF, PATCHED, STOCK
from tests.gpu.serving.conversations import tokens
from tests.gpu.serving.processes import Server

#: Prompts, in tokens: what a server has read from the store is at least half of them. HiCache asks for none below 256
LENGTHS, BLOCK = (400, 700, 1500, 3000), 64
ROUNDING = 0.01
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048}


class Store(NamedTuple):
    """rope: settings of YaRN that `fix` corrects; settings and variables of a server at the store in a folder."""

    fix: str
    rope: Mapping[str, float]
    settings: Callable[[Path], dict[str, Any]]
    variables: Callable[[Path], dict[str, str]] = lambda folder: {}


STORES = {
    "vllm": Store(
        "vllm.yarn-attention-factor",
        {"attention_factor": 0.8},
        lambda folder: {
            "block_size": BLOCK, "max_model_len": 8192, "enforce_eager": True,
            "kv_transfer_config": {
                "kv_connector": "ExampleConnector", "kv_role": "kv_both",
                "kv_connector_extra_config": {"shared_storage_path": str(folder)},
            },
        },
    ),
    "sglang": Store(
        "sglang.yarn-settings",
        {"mscale": 1.0, "mscale_all_dim": 1.0},
        lambda folder: {
            "page_size": BLOCK, "context_length": 8192, "max_total_tokens": 32768, "mem_fraction_static": 0.1,
            "attention_backend": "triton", "disable_cuda_graph": True, "enable_hierarchical_cache": True, "hicache_size": 4,
            "hicache_io_backend": "direct", "hicache_storage_backend": "file",
            "hicache_storage_prefetch_policy": "wait_complete",
        },
        lambda folder: {"SGLANG_HICACHE_FILE_BACKEND_STORAGE_DIR": str(folder)},
    ),
}  # fmt: skip
#: What of a server's settings is the store
_SHARING = ("kv_transfer_config", *(f"{name}" for name in STORES["sglang"].settings(Path()) if "hi" in name))
ENVIRONMENT = {STOCK: OFF, PATCHED: {}}


def made(rope: Mapping[str, float], folder: Path) -> Path:
    """A Llama with these settings of YaRN."""
    model = models.make("llama")(folder)
    about = json.loads((model / "config.json").read_text())
    for name in ("rope_scaling", "rope_parameters"):
        about[name] = YARN | {"rope_theta": about.get("rope_theta", 10000.0)} | rope
    (model / "config.json").write_text(json.dumps(about | {"max_position_embeddings": 8192}))
    return model


@pytest.mark.parametrize("engine", STORES)
def test_no_pair_at_a_store_is_worse_than_two_stock_servers(engine, needs, out, request):
    needs(engine, (STORES[engine].fix,))
    store, began = STORES[engine], time.monotonic()
    model = made(store.rope, out / "models" / f"beside-{engine}")
    alone = {f"alone, {name}": (name, None) for name in ENVIRONMENT}
    with ThreadPoolExecutor() as pool:
        serve = lambda name, who, folder: _serve(engine, model, out, name, who, folder)  # noqa: E731
        fill = [pool.submit(serve, f"fills, {who}", who, out / "stores" / f"{engine}-{who}") for who in ENVIRONMENT]
        found = {name: pool.submit(serve, name, *side) for name, side in alone.items()}
        filled = dict(zip(ENVIRONMENT, (one.result() for one in fill)))
        for first in ENVIRONMENT:
            for second in ENVIRONMENT:
                name = f"{first} -> {second}"
                found[name] = pool.submit(serve, name, second, out / "stores" / f"{engine}-{first}")
        told = {name: one.result() for name, one in found.items()}
    wrong = [f"{name}: {sentence}" for name, one in told.items() for sentence in one["wrong"]]
    right, pairs = told["alone, stock"]["answers"], {name: one for name, one in told.items() if "->" in name}
    apart = {name: max(map(answers.difference, right, one["answers"])) for name, one in told.items()}
    least = apart[f"{STOCK} -> {STOCK}"]
    wrong += [
        f"{name}: {apart[name]:.3g} from a server alone, two stock servers {least:.3g}"
        for name in pairs
        if apart[name] > least + ROUNDING
    ]
    wrong += [
        f"{name}: {one['cached']} tokens read"
        for name, one in pairs.items()
        if any(2 * c < n for c, n in zip(one["cached"], LENGTHS))
    ]
    fires = {name: store.fix in processes.corrections(one["processes"]) for name, one in told.items()}
    wrong += [f"{name}: corrected {fires[name]}" for name in fires if fires[name] != (name == "alone, patched")]
    wrong += [f"fills, {who}: {sentence}" for who, one in filled.items() for sentence in one["wrong"]]
    sides = {name: {"apart": apart[name], "corrected": fires[name]} for name in told}
    words = {STOCK: f"two stock servers {least:.2g}", PATCHED: ", ".join(f"{name} {apart[name]:.2g}" for name in pairs)}
    record = {
        "settings": store.settings(Path("store")), "environment": {}, "sides": sides, "told": words,
        "shown": fires["alone, patched"], "failures": wrong, "seconds": round(time.monotonic() - began),
    }  # fmt: skip
    cases.record(out, told["alone, stock"]["machine"], f"beside-{engine}", record, request.node.nodeid)
    assert not wrong, "\n".join(wrong)


def _serve(engine: str, model: Path, out: Path, name: str, who: str, folder: Path | None) -> dict[str, Any]:
    """The answers of a server: to prompts that have nothing cached in it. Without a folder, it has no store."""
    store = STORES[engine]
    settings = store.settings(folder or Path())
    variables = processes.VARIABLES[engine] | ENVIRONMENT[who]
    if folder is None:
        settings = {key: value for key, value in settings.items() if key not in _SHARING}
    else:
        folder.mkdir(parents=True, exist_ok=True)
        variables |= store.variables(folder)
    if who == PATCHED:
        variables |= cases.on(store.fix)
    label = f"beside-{engine}-" + "".join(c if c.isalnum() else "-" for c in name)
    if engine == "vllm":
        variables |= {"VLLM_CACHE_ROOT": str(out / "caches" / label)}
    draw = random.Random(61)
    with Server(processes.child(engine), label, out / "logs", variables) as server:
        machine = server.start(model=str(model), **cases.SHARED[engine] | settings)["machine"]
        given = [server.answer(tokens(draw, length)) for length in LENGTHS]
        time.sleep(3 if folder and name.startswith("fills") else 0)  # what is stored behind an answer
        found = {"machine": machine, "answers": given, "cached": [one["cached"] for one in given], "wrong": server.wrong}
        return found | {"processes": server.status()}
