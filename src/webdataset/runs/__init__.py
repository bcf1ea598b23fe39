"""Runs: a function or command applied to many shards, once each, by an engine: this machine, Dask, Ray, Slurm, ...

    plans        what is to be done: items, their inputs and outputs, the program and its digest
    generations  who owns the run: one process at a time submits tasks, and only its tasks publish outputs
    staging      outputs that appear only when they are complete
    records      what was done: one JSON line for each attempt
    serving      the process that does items, one after the other
    crew         looks after such processes: time limits, retries, processes that die
    runs         a plan and its records: what is done, what is left
    control      carries out a plan: submits tasks, follows the records, submits again what was lost
    engines/     local, dask, ray, slurm, k8s, argo; each only starts tasks and knows whether they run

A run is a folder, or a prefix in a bucket, in which everything is kept, so that it can be looked at, ended and resumed
from anywhere.
"""
