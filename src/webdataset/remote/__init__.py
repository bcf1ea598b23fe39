"""Batches from other machines: producers make them, a trainer asks for them by number."""
