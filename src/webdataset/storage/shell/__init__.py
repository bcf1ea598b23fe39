"""Commands as streams, and what is reached through them: pipes, ssh, the programs of stores."""
