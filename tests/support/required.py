"""What a test may do without where it is not there, and must not where the caller says so."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest


def lacking(what: str, reason: str) -> NoReturn:
    """Skip for want of `what`; fail where TESTS_REQUIRE names it (words with commas between them)."""
    if what in os.environ.get("TESTS_REQUIRE", "").split(","):
        pytest.fail(f"TESTS_REQUIRE={what}: {reason}")
    pytest.skip(reason)
