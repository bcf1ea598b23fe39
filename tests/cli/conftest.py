"""Fixtures that run commands."""

from cli_support import here, members, names, wl, wl_process

__all__ = ["here", "members", "names", "wl", "wl_process"]
