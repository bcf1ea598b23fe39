"""What the commands do, as functions, without a command line."""
