"""What a task needs and how failures are treated: the options that all engines have in common."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass, field
from typing import Any, Self

from webdataset.base.packages import imported
from webdataset.base.units import number_of_bytes
from webdataset.errors import MissingPackageError

from .outcomes import Verdict, parsed_codes


@dataclass(frozen=True)
class TaskOptions:
    """Options of a run.

    >>> TaskOptions.of({"memory": "2Gi", "slurm": {"partition": "cpu"}}).memory
    2147483648
    """

    cpus: int = 1
    """Of each task."""
    memory: int | None = None
    gpus: int = 0
    image: str | None = None
    environment: dict[str, str] = field(default_factory=dict)
    retries: int = 2
    """How often a shard is tried again."""
    timeout: float | None = None
    """Seconds for one shard."""
    shards_per_task: int | None = None
    max_failures: int | None = None
    """Stop the run when more shards than this were given up."""
    workers: int | None = None
    """How many tasks run at a time."""
    address: str | None = None
    """Of a Dask or Ray cluster."""
    python: str | None = None
    """The interpreter of Slurm's nodes."""
    retry_codes: str = ""
    give_up_codes: str = ""
    stop_codes: str = ""
    own: dict[str, Any] = field(default_factory=dict)
    """The section of each engine, by its name."""

    @classmethod
    def of(cls, given: dict[str, Any]) -> Self:
        """Make options of a dict, such as the contents of a file; tables are the sections of engines."""
        from .engines import NAMES

        known = {each.name for each in dataclasses.fields(cls)} - {"own"}
        common = {name.replace("-", "_"): value for name, value in given.items() if name not in NAMES}
        if unknown := sorted(set(common) - known):
            raise ValueError(f"there is no option {unknown[0]!r}; options are {', '.join(sorted(known))}")
        options = cls(**common, own={name: dict(given[name]) for name in NAMES if given.get(name)})
        return options._checked()

    def _checked(self) -> Self:
        memory = None if self.memory is None else number_of_bytes(self.memory)
        least = {"cpus": 1, "gpus": 0, "retries": 0, "shards_per_task": 1, "max_failures": 0, "workers": 1}
        for name, value in least.items():
            found = getattr(self, name)
            if found is not None and (not isinstance(found, int) or found < value):
                raise ValueError(f"{name} must be a number of at least {value}, got {found!r}")
        if self.timeout is not None and not self.timeout > 0:
            raise ValueError(f"timeout must be above 0, got {self.timeout!r}")
        self.verdicts()
        return dataclasses.replace(self, memory=memory)

    def verdicts(self) -> dict[int, Verdict]:
        """Return what exit codes of the user's command mean, where the user has said so."""
        texts = {Verdict.RETRY: self.retry_codes, Verdict.GIVE_UP: self.give_up_codes, Verdict.STOP: self.stop_codes}
        found: dict[int, Verdict] = {}
        for verdict, text in texts.items():
            found |= parsed_codes(text, verdict) if text else {}
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the options as plain data, from which `of` makes them again."""
        plain = {each.name: getattr(self, each.name) for each in dataclasses.fields(self) if each.name != "own"}
        return plain | self.own


def options_file(path: str) -> dict[str, Any]:
    """Read options from a TOML or YAML file."""
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError as error:
        raise ValueError(f"cannot read the options in {path!r}: {error.strerror}") from None
    kind = os.path.splitext(path)[1]
    try:
        if kind == ".toml":
            import tomllib

            found = tomllib.loads(data.decode())
        elif kind in (".yaml", ".yml"):
            found = _yaml(data)
        else:
            raise ValueError("expected a name that ends in .toml, .yaml or .yml")
    except (ValueError, UnicodeDecodeError) as error:
        raise ValueError(f"cannot read the options in {path!r}: {error}") from None
    if not isinstance(found, dict):
        raise ValueError(f"{path!r} has no options: expected names with values")
    return found


def _yaml(data: bytes) -> Any:
    try:
        yaml = imported("yaml")
    except ImportError as error:
        hint = "write a .toml file, or pip install 'webdataset[formats]'"
        raise MissingPackageError("PyYAML is needed to read .yaml files", hint=hint) from error
    try:
        return yaml.safe_load(data)
    except yaml.YAMLError as error:
        raise ValueError(" ".join(str(error).split())) from None
