"""The engines: each starts tasks somewhere and knows whether they still run; what a task does is the same for all."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from webdataset.runs.options import TaskOptions

    from .base import Engine

NAMES = ("local", "dask", "ray", "slurm", "k8s", "argo")


def engine_named(name: object, options: TaskOptions) -> Engine:
    """Return an engine of the table, or that of a Dask Client.

    >>> from webdataset.runs.options import TaskOptions
    >>> engine_named("local", TaskOptions()).name
    'local'
    """
    if not isinstance(name, str) and type(name).__module__.startswith("distributed."):
        of_client: Engine = import_module(f"{__name__}.dask").ENGINE(options, name)
        return of_client
    if name not in NAMES:
        raise ValueError(f"there is no engine {name!r}; engines are {', '.join(NAMES)}")
    made: Engine = import_module(f"{__name__}.{name}").ENGINE(options)
    return made
