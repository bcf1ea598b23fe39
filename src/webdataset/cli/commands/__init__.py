"""The commands of `wl`, one module each."""
