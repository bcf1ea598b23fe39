"""Fixtures that run commands."""

from cli_support import members, names, wl, wl_process

__all__ = ["members", "names", "wl", "wl_process"]
