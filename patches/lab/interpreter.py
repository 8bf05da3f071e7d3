"""What Triton's interpreter lacks, where a proof runs an engine's kernel in it."""

from __future__ import annotations

from typing import Any


def take_any_mask() -> None:
    """A mask may be of integers, or a scalar, which Triton's interpreter refuses and its compiler does not."""
    from triton.runtime.interpreter import InterpreterBuilder

    for name, at in (("create_masked_load", 1), ("create_masked_store", 2)):
        former = getattr(InterpreterBuilder, name)

        def with_bools(self: Any, *args: Any, former: Any = former, at: int = at) -> Any:
            args[at].data = args[at].data.astype(bool)
            return former(self, *args)

        setattr(InterpreterBuilder, name, with_bools)
