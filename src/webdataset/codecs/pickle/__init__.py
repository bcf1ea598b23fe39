"""The restricted unpickler: a machine that executes a pickle without calling what it names."""
