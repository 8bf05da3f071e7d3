"""A scheduler of sglang, constructed by the engine from a launch command's flags, on a machine without a GPU.

What cannot be had here, and what stands there instead:
- Processes: the scheduler's alone is constructed. Its sockets are made; nobody listens, and requests come from the caller.
- The device: flags are read as on a machine with an NVIDIA GPU, then tensors are made on the CPU. Layers other than attention
  take the engine's own native path, as they do wherever the engine sees no GPU.
- Weights are random (`--load-format dummy`).
- The compute capability is said to be 9.0.
- Compiled packages (sgl_kernel, FlashInfer) are not installed: `kernels` has what stands at their entry points.
"""

from __future__ import annotations

import json
import logging
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from attnfix.patches.proofkit.sglang.engine import accepted, module, on_cpu

from ..protocol import refusing

ROOM = 8  # requests at a time, at most


def ease() -> None:
    """Before the engine's models are imported: names that they import where they see no GPU, and that nothing here calls."""
    for name in ("vllm", "vllm._custom_ops"):
        sys.modules.setdefault(name, types.ModuleType(name))
    vars(sys.modules["vllm._custom_ops"]).setdefault("rotary_embedding", None)
    logging.disable(logging.WARNING)


def on_hopper() -> None:
    """Let the engine's modules, once they are imported, see the compute capability of an H200."""
    import torch

    torch.cuda.get_device_capability = lambda *_: (9, 0)  # the oldest releases ask torch
    for name, home in list(sys.modules.items()):
        if name.startswith("sglang.") and "get_device_capability" in vars(home):
            vars(home)["get_device_capability"] = torch.cuda.get_device_capability


def server_args(config: Mapping[str, Any], flags: list[str], draft: Mapping[str, Any] | None = None) -> Any:
    """`ServerArgs` of a launch with these flags of a model with this config.json. Raises Refused where the engine does."""
    folder = _model(config)
    given = ["--model-path", folder, "--device", "cuda", "--load-format", "dummy", "--skip-tokenizer-init", *flags]
    if draft is not None:
        given += ["--speculative-draft-model-path", _model(draft)]
    with refusing(SystemExit):
        return module("server_args").prepare_server_args(given)


def _model(config: Mapping[str, Any]) -> str:
    folder = Path(tempfile.mkdtemp(prefix="attnfix-model-"))
    (folder / "config.json").write_text(json.dumps(config))
    return str(folder)


def scheduler(args: Any) -> Any:
    """The scheduler of a server with one rank. To be called, and used, within `surroundings`."""
    kind, ports = module("managers.scheduler").Scheduler, module("server_args").PortArgs.init_new(args)
    ranks = {
        "server_args": args, "port_args": ports, "gpu_id": 0, "tp_rank": 0, "moe_ep_rank": 0, "pp_rank": 0,
        "attn_cp_rank": 0, "moe_dp_rank": 0, "dp_rank": None,
    }  # fmt: skip
    with refusing():
        return kind(**accepted(kind, ranks))


@contextmanager
def surroundings(args: Any) -> Iterator[None]:
    """A process of the server with these arguments, whose device is the CPU."""
    context = module("runtime_context")
    with ExitStack() as stack:
        stack.enter_context(on_cpu())
        if hasattr(context, "SpawnRanks"):  # 0.5.21 and later
            context.publish(args, role="scheduler", ranks=context.SpawnRanks(world_rank=0, gpu_id=0))
        elif context and hasattr(context, "publish"):
            context.publish(args, role="scheduler")
        bag = context and getattr(context, "get_device", None)
        if bag:
            stack.enter_context(bag().override(device="cpu"))
        with suppress(AttributeError):  # the newest releases' arguments are read-only, and are not asked
            args.device = "cpu"
        yield
