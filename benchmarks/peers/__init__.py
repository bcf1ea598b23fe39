"""The other loaders that the benchmark measures, each as its documentation recommends.

A module per peer: `PACKAGES` is what pip installs for it, `NEEDS` what it needs besides; `prepare(case)` writes its own
format from the shards, where it has one; and a function for each kind of scenario that it can do:

    raw(case)       the bytes of one field of all samples, in one process
    shuffled(case)  the same, shuffled as with a buffer of 10,000
    rgb(case)       the images decoded to arrays of H x W x 3 bytes, with labels, in one process
    train(case)     batches (images N x 3 x 224 x 224, labels) of random crops, flipped and normalized

What is not there is not offered, and the table says so.
"""
