"""Every line below is a mistake that a type checker finds."""

import webdataset as wds

dataset = wds.WebDataset("a.tar")
dataset.shuffle(10, initail=3)
dataset.batched("many")
dataset.shufle(10)
wds.WebLoader(dataset, num_workers="two")
wds.ShardWriter("a-%d.tar", maxcount="x")
wds.ShardWriter("a-%d.tar", compres="gz")
dataset.plan(rnks=3)
one, two, three = dataset.to_tuple("jpg", "cls")[0]
dataset.to_tuple("jpg", "cls", handlr=None)
dataset.to_tuple("jpg", "cls").batched(2).shufle(3)
wds.WebDataset("a.tar", exact=True).map(len)[0].upper()
