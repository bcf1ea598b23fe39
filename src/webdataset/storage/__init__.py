"""A url becomes bytes, bytes become an object."""
