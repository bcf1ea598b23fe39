"""The commands around batches from other machines."""
