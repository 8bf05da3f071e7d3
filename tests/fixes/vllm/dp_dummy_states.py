"""Rows of vllm.dp-dummy-states for the tests that try every fix."""

from __future__ import annotations

#: Settings that the differential run must try it in, or why its space does not reach it
DIFFERENTIAL = "FILL IN"
