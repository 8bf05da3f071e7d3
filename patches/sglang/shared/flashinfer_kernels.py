"""Kernels of FlashInfer that a fix plans with and the engine would not: there when a backend is made, so that no request waits.

FlashInfer compiles a kernel for minutes when a plan first asks for it and its cache is cold. Here another process compiles, and
ends when its time is up or the process that waits for it is gone. FlashInfer locks each kernel, so that one rank of a node
compiles and the others wait.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from typing import Any, NamedTuple

#: Seconds that a process waits for all its kernels: ranks of other nodes wait in a collective, by default for 600
LIMIT = 480.0
#: Seconds in which compilers may remove what is half written
GRACE = 5.0
#: Where an updater keeps the soft cap that its plans get
CAP = "attnfix_soft_cap"
_waited = 0.0
_loaded: set[Kernel] = set()
_ending = False
#: Another FlashInfer than those that are known: what its plans compile, nobody can say
_UNFAMILIAR = ImportError, AttributeError, TypeError, KeyError


class Kernel(NamedTuple):
    """What FlashInfer's plans ask for by; types of data by name. `backend`: of prefill; empty for its own decode kernel."""

    backend: str
    q: str
    kv: str
    head_dim: int
    window: bool
    soft_cap: bool

    def spec(self) -> Any:
        """FlashInfer's own description of how to compile it."""
        if not self.backend:
            return import_module("flashinfer.decode").gen_batch_decode_module(*self._arguments())
        prefill = import_module("flashinfer.prefill")
        primary = getattr(prefill, "_gen_batch_prefill_primary_module", None)  # from 0.7 on
        made = primary if primary and self.backend == "fa2" else prefill.gen_batch_prefill_module
        return made(self.backend, *self._arguments(), False)

    def load(self) -> None:
        """As a plan does, which finds it loaded then."""
        if self.backend:
            import_module("flashinfer.prefill").get_batch_prefill_module(self.backend, *self._arguments(), False)
        else:
            import_module("flashinfer.decode").get_batch_decode_module(*self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        import torch

        q, kv = getattr(torch, self.q), getattr(torch, self.kv)
        return q, kv, q, torch.int32, self.head_dim, self.head_dim, 0, self.window, self.soft_cap


def of_prefill(updater: Any, wrapper: Any, *, window: bool = False, soft_cap: bool, ragged: bool = False) -> Kernel | None:
    """What a plan of `wrapper` asks for; None where CUTLASS or another kernel without variants attends. Ragged prefill attends
    to new tokens, which are not in the cache."""
    backend = getattr(wrapper, "_backend", "")
    if backend not in ("fa2", "fa3", "auto"):
        return None
    q, kv = updater.q_data_type, updater.q_data_type if ragged else updater.data_type
    if backend == "auto":
        try:
            backend = _chosen(wrapper.device, q, kv, updater.head_dim)
        except _UNFAMILIAR:
            return None
    return Kernel(backend, _name(q), _name(kv), updater.head_dim, window, soft_cap)


def _chosen(device: Any, q: Any, kv: Any, head_dim: int) -> str:
    """What FlashInfer takes for "auto" without a mask. From 0.7 on it minds the head's size."""
    choose = import_module("flashinfer.utils").determine_attention_backend
    names = choose.__code__.co_varnames[: choose.__code__.co_argcount + choose.__code__.co_kwonlyargcount]
    sizes = {name: head_dim for name in ("head_dim_qk", "head_dim_vo") if name in names}
    return str(choose(device, 0, False, False, q, kv, **sizes))


def of_decode(updater: Any, wrapper: Any) -> Kernel | None:
    """The same of a decode wrapper with a soft cap. With tensor cores it takes a prefill kernel."""
    if getattr(wrapper, "use_tensor_cores", False):
        kernel = of_prefill(updater, wrapper, soft_cap=True)
        return kernel._replace(backend="fa2") if kernel and _decodes_by_fa2() else kernel
    return Kernel("", _name(updater.q_data_type), _name(updater.data_type), updater.head_dim, False, True)


def _decodes_by_fa2() -> bool:
    """Whether decode has FA2's kernel, whatever prefill has: so up to 0.5.3."""
    with suppress(*_UNFAMILIAR):
        return not hasattr(import_module("flashinfer.decode"), "determine_attention_backend")
    return False


def attends(model_runner: Any, part: str) -> bool:
    """Whether FlashInfer may attend in `part` ("prefill", "decode") of this model. A draft model may have other backends."""
    chosen = getattr(model_runner, f"{part}_attention_backend_str", "flashinfer")
    return chosen == "flashinfer" or verifies(model_runner) or getattr(model_runner, "is_draft_worker", False)


def verifies(model_runner: Any) -> bool:
    """Whether there are drafts that eagle-swa-verify knows."""
    algorithm = getattr(getattr(model_runner, "server_args", None), "speculative_algorithm", None)
    return algorithm is not None and str(algorithm).upper() not in ("NONE", "DFLASH", "DSPARK")


def longer_than(window: int, model_runner: Any) -> bool:
    """Whether a request may be longer than the window."""
    context = getattr(getattr(model_runner, "model_config", None), "context_len", None)
    return context is None or context > window + 1


def ready(target: Any, kernels: Iterable[Kernel | None]) -> bool:
    """Have these kernels compiled and loaded; False where that failed, and the fix is given up. `target`: its `Correction`."""
    wanted = [kernel for kernel in dict.fromkeys(kernels) if kernel is not None and kernel not in _loaded]
    try:
        try:
            cold = [kernel for kernel in wanted if not is_compiled(kernel)]
        except _UNFAMILIAR:
            return True  # its plans are guarded
        if cold:
            compile_apart(cold)
        for kernel in wanted:
            kernel.load()
            _loaded.add(kernel)
    except Exception as error:
        target.give_up(f"FlashInfer has no kernel for this fix's plans: {error}")
        return False
    return True


def is_compiled(kernel: Kernel) -> bool:
    """Whether there is a library. Where its sources are newer, `load` compiles it anew, here and for as long as it takes, as
    the engine's own plan does."""
    spec = kernel.spec()
    return any(path is not None and path.exists() for path in (spec.aot_path, spec.jit_library_path))


def compile_apart(kernels: list[Kernel]) -> None:
    """Raises RuntimeError with what the compiling process said."""
    import json
    import subprocess  # nosec B404: this very Python
    import tempfile

    global _waited
    left, begun = max(LIMIT - _waited, 0.0), time.monotonic()
    say(f"FlashInfer compiles {len(kernels)} kernels that the fixes need, {left:.0f} s at most")
    with tempfile.TemporaryFile() as said:
        child = subprocess.Popen(  # nosec B603
            [sys.executable, "-c", _CHILD, json.dumps(kernels), str(os.getpid()), os.pathsep.join(map(str, sys.path))],
            stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            env={**os.environ, "ATTNFIX": "0", **architectures()}, start_new_session=True,
        )  # fmt: skip
        try:
            code = child.wait(left)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"not compiled within {LIMIT:.0f} s; the next start finds what was compiled") from None
        finally:
            _waited += time.monotonic() - begun
            if child.poll() != 0:
                end_session(child.pid)
                if child.poll() is None or not proc_is_ours():
                    end_group(child)
        if code:
            said.seek(0)
            lines = [line for line in said.read().decode(errors="replace").splitlines() if line.strip()]
            telling = [line for line in lines if "not found" in line or "error:" in line] + lines[-1:]
            raise RuntimeError(telling[0].strip() if telling else f"the compiling process ended with {code}")


def end_session(session: int) -> None:
    """End its processes but this one. Ninja gives each command a group of its own, and on SIGTERM removes its output."""
    for signal_number in (signal.SIGTERM, signal.SIGKILL):
        for pid in running_in(session):
            with suppress(OSError):
                os.kill(pid, signal_number)
        end = time.monotonic() + GRACE
        while running_in(session) and time.monotonic() < end:
            time.sleep(0.05)


def end_group(child: Any) -> None:
    """The same where /proc tells nothing: of the child and of ninja in its group, which ends its compilers."""
    with suppress(OSError):  # nobody is left
        for signal_number in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(child.pid, signal_number)
            end = time.monotonic() + GRACE
            while time.monotonic() < end:
                child.poll()
                os.killpg(child.pid, 0)
                time.sleep(0.05)
    child.poll()


def proc_is_ours() -> bool:
    """Whether /proc is there, and numbers processes as this one is numbered."""
    with suppress(OSError):
        return os.readlink("/proc/self") == str(os.getpid())
    return False


def running_in(session: int) -> list[int]:
    """Processes of a session that run, but this one; none where /proc is missing, or numbers them for another namespace."""
    found = []
    with suppress(OSError):
        for name in filter(str.isdigit, os.listdir("/proc") if proc_is_ours() else ()):
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as stat:
                state, _, _, its = stat.read().rpartition(b")")[2].split()[:4]
                if int(its) == session and state != b"Z" and int(name) != os.getpid():
                    found.append(int(name))
    return found


def architectures() -> dict[str, str]:
    """For what to compile, so that the other process needs no GPU."""
    with suppress(*_UNFAMILIAR):
        known = import_module("flashinfer.jit.core").current_compilation_context.TARGET_CUDA_ARCHS
        if known and "FLASHINFER_CUDA_ARCH_LIST" not in os.environ:
            return {"FLASHINFER_CUDA_ARCH_LIST": " ".join(f"{major}.{minor}" for major, minor in sorted(known))}
    return {}


def say(message: str) -> None:
    from attnfix.compat.status import messages

    with suppress(Exception):
        messages.logger("sglang").info("attnfix: %s", message)


def _name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def main(kernels: list[list[Any]]) -> None:
    """Compile them one after another, as FlashInfer does: each compiler takes gigabytes. FlashInfer says how many run."""
    for kernel in kernels:
        Kernel(*kernel).spec().build_and_load()


def serve() -> None:
    """What the compiling process runs."""
    import json
    import threading

    signal.signal(signal.SIGTERM, _terminated)
    threading.Thread(target=_end_without, args=(int(sys.argv[2]),), daemon=True).start()
    main(json.loads(sys.argv[1]))


def _end_without(parent: int) -> None:
    """End this session once the process that waits for it is gone. What started this one may be a launcher of its own."""
    global _ending
    first = os.getppid()
    try:
        while os.getppid() == first:
            os.kill(parent, 0)
            time.sleep(1.0)
    except OSError:
        pass
    finally:
        _ending = True
        end_session(os.getsid(0))
        if not proc_is_ours():  # nobody was found: ninja is in this group
            os.killpg(0, signal.SIGTERM)
            time.sleep(GRACE)
        os.killpg(0, signal.SIGKILL)


def _terminated(*_: Any) -> None:
    """On SIGTERM: this process ends, unless it is what ends the others and gives ninja its time."""
    if not _ending:
        os._exit(128 + signal.SIGTERM)


#: Modules are found as in the process that waits: with `-m` or `-c` alone, those of the working folder would come first
_CHILD = f"import sys; sys.path[:] = sys.argv.pop().split({os.pathsep!r}); from {__name__} import serve; serve()"
