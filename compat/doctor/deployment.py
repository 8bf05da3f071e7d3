"""One deployment, as far as it is known before it starts: release, model, GPU, launch command. Facts are made of these."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from packaging.version import Version

from .. import untrusted
from . import engine_options
from .condition import OFF, ON, Fact, known, unknown
from .gpus import Gpu
from .launch_command import Launch

#: What would settle a fact of which nothing is known
NO_CONFIG = "needs the model's config.json"
NO_GPU = "needs --gpu"
NO_LAUNCH = "needs the launch command behind --"

#: Option whose JSON an engine writes over config.json, and the option that names another config.json
OVERRIDES = {"sglang": "json-model-override-args", "vllm": "hf-overrides"}
CONFIG_PATH = "hf-config-path"
#: Parts of config.json that describe the language model. An override of a part changes keys in it; any other object is replaced
_PARTS = ("text_config", "language_config", "llm_config")
_CONFIG_LIMIT = 16 << 20  # bytes; models' are a few kilobytes


@dataclass
class Deployment:
    """`release` None: unknown, or beyond those whose defaults were read; a candidate counts as its release. `config` is the
    model's config.json, and gets what the launch line writes over it; `no_config` says what is missing where it is None;
    `environment` is what the launch inherits."""

    engine: str
    release: Version | None = None
    config: Mapping[str, Any] | None = None
    gpu: Gpu | None = None
    launch: Launch | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    no_config: str = NO_CONFIG

    def __post_init__(self) -> None:
        if self.release is not None and self.release.pre:
            self.release = Version(self.release.base_version)
        if self.config is None and self.given(CONFIG_PATH):
            self.no_config = f"needs the config.json of --{CONFIG_PATH}, which is not on this machine"
        if self.config is not None and self.launch is not None:
            try:
                self.config = _overridden(self.config, _overrides(self.launch, OVERRIDES[self.engine]))
            except ValueError as error:
                self.config, self.no_config = None, str(error)

    def option(self, name: str, default: str | int | None = None) -> Fact:
        """An option's value on the launch line, else `default`; None: the engine decides, and the fact is unknown."""
        flag = f"--{name}"
        if self.launch is None:
            return unknown(NO_LAUNCH)
        if name in self.launch.options:
            return known(self.launch.options[name], flag)
        if (value := self._within(name)) is not None:
            return known(value, flag)
        if self.launch.not_read:
            files = ", ".join(name.partition(" (")[0] for name in self.launch.not_read)  # without the reason
            return unknown(f"{flag} may be set in {files}, which is not read")
        return unknown(f"no {flag}") if default is None else known(default, f"no {flag}")

    def _within(self, name: str) -> str | None:
        """A key of JSON within JSON, as of `kv-transfer-config.kv_connector_extra_config`, which stands as text."""
        parent, _, key = name.rpartition(".")
        text = self.launch.options.get(parent, "") if self.launch else ""
        try:
            found = untrusted.parsed(text) if text.startswith("{") else {}
        except ValueError:
            return None
        value = found.get(key) if isinstance(found, Mapping) else None
        return None if value is None else value if isinstance(value, str) else json.dumps(value)

    def number(self, name: str, default: int | None = None) -> Fact:
        """An option's value as an integer; one that is none is unknown."""
        fact = self.option(name, default)
        try:
            return Fact(tuple(map(int, fact.values)), fact.why)
        except ValueError:
            return unknown(f"{fact.why} {fact.values[0]} is no number")

    def given(self, *names: str) -> bool:
        """Whether one of the options, or a key of it, stands on the launch line."""
        options = self.launch.options if self.launch else {}
        return any(option == name or option.startswith(f"{name}.") for option in options for name in names)

    def absent(self, name: str) -> bool:
        """Whether the option is certainly not given: the launch line is known, and no file may hold it."""
        return self.launch is not None and not self.launch.not_read and not self.given(name)

    def moved_by(self, choice: str, settled: Collection[str]) -> str:
        """The options on the launch line that the engine's code for `choice` reads, each with a value of its own, and that no
        fact has settled; empty: none."""
        release = str(self.release) if self.release else None
        read = engine_options.read_by(self.engine, release, choice)
        return ", ".join(
            f"--{name}"
            for name, value in (self.launch.options if self.launch and self.launch.typed else {}).items()
            if _stands_in(name, read) and not _stands_in(name, settled) and not self._is_default(name, value)
        )

    def _is_default(self, name: str, value: str) -> bool:
        default = engine_options.default(self.engine, str(self.release), name)
        if isinstance(default, bool):
            return value == (ON if default else OFF)
        return default is not None and value == str(default)

    def variables(self) -> Mapping[str, str]:
        """The environment of the engine: what the launch inherits, and over it what the line sets."""
        return {**self.environment, **(self.launch.variables if self.launch else {})}

    def truth(self, variable: str) -> bool | None:
        """Whether a variable is set to a true or a false value; None where it is not set."""
        value = self.variables().get(variable)
        return None if value in (None, "") else str(value).lower() in ("1", "true", "yes", "y", "on")

    def text_config(self) -> Mapping[str, Any]:
        """The part of config.json that describes the language model."""
        config = self.config or {}
        thinker = config.get("thinker_config")  # Qwen's models that speak
        config = thinker if isinstance(thinker, Mapping) else config
        parts = (config.get(name) for name in _PARTS)
        return next((part for part in parts if isinstance(part, Mapping)), config)

    def architecture(self) -> str | None:
        names = (self.config or {}).get("architectures")
        return names[0] if isinstance(names, list) and names and isinstance(names[0], str) else None

    def since(self, first: str) -> bool:
        return self.release is not None and self.release >= Version(first)


def _stands_in(name: str, names: Collection[str]) -> bool:
    """Whether the option, or the option that it is a key of, is one of the names."""
    parts = name.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


def _overrides(launch: Launch, name: str) -> dict[str, Any]:
    """The JSON of the option `name`, all its keys together. Raises ValueError with the reason where it cannot be read."""
    found: dict[str, Any] = {}
    unread = ValueError(f"--{name} changes config.json, and its JSON cannot be read")
    if any(word.replace("_", "-").startswith(f"--{name}") for word in launch.not_understood):
        raise unread
    for option, text in launch.options.items():
        first, *keys = option.split(".", 50)
        if first != name:
            continue
        try:
            value = untrusted.parsed(text)
        except ValueError:
            value = [text] if keys == ["architectures"] else text
        for key in reversed(keys):
            value = {key: value}
        if not isinstance(value, Mapping):
            raise unread
        found = _merged(found, value)
    return found


def _overridden(config: Mapping[str, Any], overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    parts = {name: value for name, value in overrides.items() if name in _PARTS}
    return {**_merged(config, parts), **{name: value for name, value in overrides.items() if name not in parts}}


def _merged(into: Mapping[str, Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """`into` with `values`, which replace what is there but keys of an object."""
    both = {name for name, value in values.items() if isinstance(value, Mapping) and isinstance(into.get(name), Mapping)}
    return {**into, **{name: _merged(into[name], value) if name in both else value for name, value in values.items()}}


def read_config(path: Path) -> Mapping[str, Any]:
    """The config.json at `path`, a file or the folder of a model, whoever's it is. Raises OSError or ValueError."""
    config = untrusted.parsed(untrusted.read(path / "config.json" if path.is_dir() else path, _CONFIG_LIMIT, follow=True))
    if not isinstance(config, dict):
        raise ValueError("it holds no JSON object")
    return config


def attention(deployment: Deployment, name: str | None, since: Mapping[str, str], what: str) -> Fact:
    """MLA, sparse MLA or MHA. `name` is what the engine decides by (`what` it is), `since` the first release that takes each
    such name for MLA."""
    if deployment.config is None:
        return unknown(NO_CONFIG)
    text = deployment.text_config()
    if text.get("kv_lora_rank") is None:
        return known("MHA", "config.json has no kv_lora_rank")
    first = since.get(name or "")
    if first is None or not deployment.since(first):
        return Fact(("MLA", "MHA"), f"whether this release runs {what} {name} as MLA was not read")
    return known("MLA" if text.get("index_topk") is None else "sparse MLA", f"{what} {name}")


def maker(deployment: Deployment) -> Fact:
    return known(deployment.gpu.maker, str(deployment.gpu)) if deployment.gpu else unknown(NO_GPU)


def switch(fact: Fact, when_set: str) -> Fact:
    """`when_set` where the switch is on, else its opposite."""
    opposite = {ON: OFF, OFF: ON}
    return Fact(tuple(when_set if value == ON else opposite[when_set] for value in fact.values), fact.why)


def either(*facts: Fact) -> Fact:
    """On where one of the facts is on, off where all are off."""
    for fact in facts:
        if fact.values == (ON,):
            return fact
    why = ", ".join(dict.fromkeys(fact.why for fact in facts))
    return known(OFF, why) if all(fact.values == (OFF,) for fact in facts) else unknown(why)


#: How an engine makes its facts: name of the fact -> what makes it
Makers = Mapping[str, Callable[[Deployment], Fact]]


def _architecture(it: Deployment) -> Fact:
    name = it.architecture()
    return known(name, "config.json") if name else unknown(NO_CONFIG)


def _capability(it: Deployment) -> Fact:
    return known(it.gpu.capability or 0, str(it.gpu)) if it.gpu else unknown(NO_GPU)


def _release(it: Deployment) -> Fact:
    return known(str(it.release)) if it.release else unknown("the release is not known")


def _mrope(it: Deployment) -> Fact:
    """Whether positions have rows for time, height and width, as those of Qwen's models with images have."""
    if it.config is None:
        return unknown(NO_CONFIG)
    text = it.text_config()
    scaled = [text.get(name) for name in ("rope_scaling", "rope_parameters")]
    has = any(isinstance(rope, Mapping) and "mrope_section" in rope for rope in scaled)
    return known(ON if has else OFF, f"config.json has {'an' if has else 'no'} mrope_section")


#: Facts that need nothing of an engine
GENERAL: Makers = {"architecture": _architecture, "compute capability": _capability, "release": _release, "M-RoPE": _mrope}
