"""Write shards: encode samples, name and index archives, replace earlier sets."""
