"""Inspect datasets: list, describe, show, extract, dump, lint, measure."""
