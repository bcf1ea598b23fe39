"""Resume a streamed pass from a position."""
