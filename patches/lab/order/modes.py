"""The modes of torch in which an `Order` records: where tensors are, and what each op reads and writes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from . import memory as shadow
from .memory import DEVICE, HOST, PINNED, Cells, Memory
from .recorder import Order

#: Ops that write nothing and read no element
_NO_ACCESS = ("empty", "new_empty", "resize", "set_", "_local_scalar", "is_pinned", "_pin_memory")
#: In-place ops that do not read what they write
_OVERWRITE = {
    "copy_", "fill_", "zero_", "index_put_", "_index_put_impl_", "index_copy_", "index_fill_", "scatter_", "random_",
    "uniform_", "normal_", "arange", "_foreach_zero_", "_foreach_copy_",
}  # fmt: skip
#: Ops whose result depends on values: the host waits for them
_WAITS = {
    "_local_scalar_dense", "nonzero", "equal", "masked_select", "_unique2", "unique_dim", "unique_consecutive",
    "repeat_interleave", "is_nonzero", "bincount",
}  # fmt: skip
#: op -> (argument that it accesses by rows, the elements of it, given all arguments by name)
_CHOSEN: dict[str, tuple[str, Callable[[Any, dict[str, Any]], Any]]] = {
    "index_select": ("self", lambda all, given: all.index_select(given["dim"], given["index"])),
    "index_copy_": ("self", lambda all, given: all.index_select(given["dim"], given["index"])),
    "index_add_": ("self", lambda all, given: all.index_select(given["dim"], given["index"])),
    "index_fill_": ("self", lambda all, given: all.index_select(given["dim"], given["index"])),
    "gather": ("self", lambda all, given: all.gather(given["dim"], given["index"])),
    "scatter_": ("self", lambda all, given: all.gather(given["dim"], given["index"])),
    "embedding": ("weight", lambda all, given: all[given["indices"].flatten()]),
}
_INDEXED = {"index", "_unsafe_index", "index_put_", "_index_put_impl_"}


@contextmanager
def recording(order: Order) -> Iterator[None]:
    """In this thread, until the end: torch's ops are recorded."""
    places, accesses = _modes(order)
    with places, accesses:
        yield


def _modes(order: Order) -> tuple[Any, Any]:
    import torch
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    handlers = _handlers(order)

    class Places(TorchFunctionMode):
        """Tensors of "cuda" are tensors of the CPU that say that they are on a GPU."""

        def __torch_function__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            if not order.recording:
                return function(*args, **kwargs)
            handler = handlers.get(function)
            if handler is not None:
                return handler(*args, **kwargs)
            if "device" not in kwargs and "pin_memory" not in kwargs:
                return function(*args, **kwargs)
            kind = _kind(kwargs.get("device"))
            kwargs = {**kwargs}
            if kind == DEVICE:
                kwargs["device"] = "cpu"
            if kwargs.pop("pin_memory", False) and kind != DEVICE:
                kind = PINNED
            with _making(order, kind):
                result = function(*args, **kwargs)
            if kind == DEVICE and function in (torch.tensor, torch.scalar_tensor):
                order.operate("copy of values", [], [(order.memory(result, DEVICE), shadow.bytes_of(result))], sync=True)
            return result

    class Accesses(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: tuple = (), kwargs: Any = None) -> Any:
            kwargs = kwargs or {}
            result = function(*args, **kwargs)
            if order.recording:
                with order.silent():
                    _note(order, function, args, kwargs, result)
            return result

    return Places(), Accesses()


def _kind(device: Any) -> str | None:
    import torch

    if device is None:
        return None
    if isinstance(device, int):
        return DEVICE
    return {"cuda": DEVICE, "cpu": HOST}.get(torch.device(device).type)


@contextmanager
def _making(order: Order, kind: str | None) -> Iterator[None]:
    own = order._own
    before = getattr(own, "making", None)
    own.making = kind
    try:
        yield
    finally:
        own.making = before


def _handlers(order: Order) -> dict[Any, Callable[..., Any]]:
    """What is done in the place of these functions of torch."""
    import torch

    Tensor = torch.Tensor

    def moved(tensor: Any, device: Any, dtype: Any = None, non_blocking: bool = False, copy: bool = False) -> Any:
        kind, now = _kind(device), order.memory(tensor).kind
        if kind is None or (kind == DEVICE) == (now == DEVICE):
            return tensor.to(dtype=dtype or tensor.dtype, copy=copy)
        with _making(order, PINNED if kind == HOST and non_blocking else kind):
            made = torch.empty_like(tensor, dtype=dtype)
        return made.copy_(tensor, non_blocking=non_blocking)

    def to(tensor: Any, *args: Any, copy: bool = False, **kwargs: Any) -> Any:
        if args and isinstance(args[0], Tensor):
            args = "cuda" if on_device(args[0]) else "cpu", args[0].dtype, *args[1:]
        kwargs.pop("memory_format", None)
        device, dtype, non_blocking, _ = torch._C._nn._parse_to(*args, **kwargs)
        return moved(tensor, device, dtype, non_blocking, copy)

    def cuda(tensor: Any, device: Any = None, non_blocking: bool = False, **_: Any) -> Any:
        return moved(tensor, "cuda", None, non_blocking)

    def pin_memory(tensor: Any, device: Any = None) -> Any:
        with _making(order, PINNED):
            return tensor.clone()

    def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
        if isinstance(data, Tensor):
            return moved(data, device, dtype)
        made = torch.as_tensor(data, dtype=dtype)
        return made if _kind(device) != DEVICE else moved(made, device)

    def read_by_host(function: Any) -> Callable[..., Any]:
        def read(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            order.operate("read by the host", [(order.memory(tensor), shadow.bytes_of(tensor))], [], sync=True)
            return function(tensor, *args, **kwargs)

        return read

    def numpy(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        from .arrays import watched

        order.memory(tensor)
        return watched(order, Tensor.numpy(tensor, *args, **kwargs))

    def on_device(tensor: Any) -> bool:
        return order.memory(tensor).kind == DEVICE

    def place(tensor: Any) -> Any:
        return torch.device("cuda", 0) if on_device(tensor) else torch.device("cpu")

    base = vars(torch._C.TensorBase)
    return {
        Tensor.to: to, Tensor.cuda: cuda, Tensor.cpu: lambda tensor, **_: moved(tensor, "cpu"), Tensor.numpy: numpy,
        Tensor.pin_memory: pin_memory, Tensor.is_pinned: lambda tensor, *_: order.memory(tensor).kind == PINNED,
        Tensor.__array__: read_by_host(Tensor.__array__), Tensor.tolist: read_by_host(Tensor.tolist),
        torch.as_tensor: as_tensor, base["is_cuda"].__get__: on_device, base["device"].__get__: place,
        Tensor.get_device: lambda tensor: 0 if on_device(tensor) else -1,
    }  # fmt: skip


def _note(order: Order, function: Any, args: tuple, kwargs: dict[str, Any], result: Any) -> None:
    """Record an op of aten."""
    schema = function._schema
    name = schema.name.partition("::")[2]
    given = dict(zip((one.name for one in schema.arguments), args), **kwargs)
    inputs = [one for value in given.values() for one in _tensors(value)]
    making = getattr(order._own, "making", None)
    if name == "lift_fresh":  # what `torch.tensor` has made
        for one in inputs:
            order.memory(one, making)
    kinds = {order.memory(one).kind for one in inputs}
    made = making or (DEVICE if DEVICE in kinds else HOST)
    known = {one.untyped_storage()._cdata for one in inputs}
    outputs = [one for one in _tensors(result) if one.untyped_storage()._cdata not in known]
    for one in outputs:
        order.memory(one, made)
    view = any(one.alias_info is not None and not one.alias_info.is_write for one in schema.returns)
    if view or (name.startswith(_NO_ACCESS) and name not in _WAITS):
        return
    reads: list[tuple[Memory, Cells]] = []
    writes = [(order.memory(one), shadow.bytes_of(one)) for one in outputs]
    blank = name.endswith("_like") or name.startswith("new_")
    for argument in schema.arguments:
        for one in _tensors(given.get(argument.name)):
            if not one.numel():
                continue
            region = order.memory(one), _cells(name, argument.name, one, given)
            written = argument.alias_info is not None and argument.alias_info.is_write
            if written:
                writes.append(region)
            if not blank and not (written and (name in _OVERWRITE or argument.name == "out")):
                reads.append(region)
    order.operate(name, reads, [one for one in writes if _any(one[1])], _waits(name, given, reads, writes))


def _any(cells: Cells) -> bool:
    return cells.stop > cells.start if isinstance(cells, slice) else bool(len(cells))


def _cells(name: str, argument: str, tensor: Any, given: dict[str, Any]) -> Cells:
    if name in _INDEXED and argument == "self":
        first, *rest = given["indices"]
        if first is not None and first.dtype not in (_bool(), _uint8()) and all(one is None for one in rest):
            return shadow.bytes_of_rows(tensor, first.numpy())
        return shadow.bytes_of_chosen(tensor, lambda all: _indexed(all, given["indices"]))
    chosen = _CHOSEN.get(name)
    if chosen and chosen[0] == argument:
        return shadow.bytes_of_chosen(tensor, lambda all: chosen[1](all, given))
    return shadow.bytes_of(tensor)


def _indexed(all: Any, indices: Any) -> Any:
    return all[tuple(slice(None) if one is None else one for one in indices)]


def _bool() -> Any:
    import torch

    return torch.bool


def _uint8() -> Any:
    import torch

    return torch.uint8


def _waits(name: str, given: dict[str, Any], reads: list[tuple[Memory, Cells]], writes: list[tuple[Memory, Cells]]) -> bool:
    """Whether the host goes on only when the op is done."""
    if name in ("copy_", "_to_copy"):
        kinds = {found.kind for found, _ in [*reads, *writes]}
        return len(kinds) > 1 and not given.get("non_blocking", False)
    if name in _INDEXED:
        return any(one is not None and one.dtype == _bool() for one in given["indices"])
    return name in _WAITS


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, torch.Tensor):
        if value.layout == torch.strided and value.device.type != "meta":
            yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)
