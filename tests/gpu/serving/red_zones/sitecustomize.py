"""On PYTHONPATH of an sglang server: behind each page table of FlashAttention's CUDA graphs lie WORDS that are no slots.

What lies behind a table otherwise is chance: where it is another small tensor, reading too far goes unnoticed. No code of the
engine is changed, so that attnfix finds the code that it knows: `torch.zeros` looks who calls it.
"""

import importlib.util
import os
import sys
from typing import Any

WORDS, WORD = 4096, 2**30  # a slot 2**30 lies hundreds of gigabytes behind the KV cache
_FUNCTION, _FILE = "init_cuda_graph_state", os.path.join("attention", "flashattention_backend.py")


def put_red_zones(torch: Any) -> None:
    from torch.utils import _device

    zeros = torch.zeros
    _device._device_constructors()  # `with torch.device(…)` keeps what it finds here: `zeros`, not `allocate`

    def allocate(*args: Any, **kwargs: Any) -> Any:
        made = zeros(*args, **kwargs)
        if torch.compiler.is_compiling():  # what follows cannot be traced, and need not
            return made
        code = sys._getframe(1).f_code
        table = made.dim() == 2 and made.dtype == torch.int32
        if not table or code.co_name != _FUNCTION or not code.co_filename.endswith(_FILE):
            return made
        block = torch.full((made.numel() + WORDS,), WORD, dtype=made.dtype, device=made.device)
        return block[: made.numel()].zero_().view(made.shape)

    torch.zeros = allocate


class _WhenTorchIsImported:
    """Finds nothing itself: it puts one step behind the loading of torch."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        load = spec.loader.exec_module

        def exec_module(module: Any) -> None:
            load(module)
            put_red_zones(module)

        spec.loader.exec_module = exec_module
        return spec


def _run_the_one_behind() -> None:
    """This file must not hide the machine's own `sitecustomize`."""
    here = os.path.dirname(os.path.abspath(__file__))
    for folder in sys.path:
        path = os.path.join(folder, "sitecustomize.py")
        if os.path.abspath(folder) != here and os.path.isfile(path):
            spec = importlib.util.spec_from_file_location("sitecustomize_behind", path)
            spec.loader.exec_module(importlib.util.module_from_spec(spec))
            return


if __name__ == "sitecustomize":
    sys.meta_path.insert(0, _WhenTorchIsImported())
    _run_the_one_behind()
