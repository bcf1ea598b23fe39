"""Exact epochs: which sample comes when, and to whom, without reading any."""
