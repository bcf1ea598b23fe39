"""Two command lines of each old program, and what they do: the top of its help."""

from __future__ import annotations

EXAMPLES = {
    "wl-map": {
        "wl-map -c '_[\"cls\"] -= 1' in.tar -o out.tar": "subtract 1 from each class",
        "wl-map -p 4 -l code.py in.tar -o out.tar": "the function transform(sample) of a file, in four processes",
    },
    "wl-xargs": {
        "wl-xargs -c 'convert sample.png sample.jpeg && rm sample.png' in.tgz -o out.tgz": "PNG to JPEG",
        "wl-xargs -P 4 -c 'mogrify -edge 5 sample.png' in.tar -o out.tar": "edge detection, using four processes",
    },
    "tarproc": {
        "tarproc -p 5 -c 'ls; gm mogrify -size 256x256 *.png -resize 256x256' in.tar > out.tar": "resize images",
        "tarproc -S -c 'for i in 1 2; do mkdir $i; cp sample.txt $i; done' in.tar -o out.tar": "samples of folders",
    },
    "tarpcat": {
        "tarpcat -p 4 -s 1000 in-{0..3}.tar > shuffled.tar": "four archives, shuffled",
        "tarpcat -p 4 in-{0..3}.tar -o all.tar": "read by four processes",
    },
    "tarsort": {
        "tarsort in.tar > sorted.tar": "by key",
        "tarsort -s cls -S int in.tar -o sorted.tar": "by class, as a number",
    },
    "tarp proc": {
        "tarp proc -c 'gm mogrify -resize 8x8 sample.png' in.tar -o out.tar": "smaller images",
        "tarp proc -m 'cp sample.txt sample-000001.txt' in.tar -o out.tar": "numbered files become samples",
    },
    "tarp sort": {
        "tarp sort -s cls in.tar -o sorted.tar": "by a field",
        "tarp sort -s __random__ in.tar -o shuffled.tar": "shuffled",
    },
    "kujob": {
        "kujob -s '{0..3}' -- tarproc -p 2 -c 'wc -c < sample.txt > sample.n' in-{}.tar -o n-{}.tar": "four shards",
        "kujob -s '{0..3}' --retries 1 -- sh -c 'tar tf in-{}.tar > list-{}.txt'": "any command",
    },
    "wl-cat": {
        "wl-cat in.tar png > picture.png": "the first image",
        "wl-cat -S '_[\"cls\"] == 7' in.tar txt 2": "the third text of class 7",
    },
    "wl-extract": {
        "wl-extract -f '__key__ cls' in.tar": "keys and classes",
        "wl-extract -F json -f 'cls txt' -c 10 in.tar": "ten lines of JSON",
    },
    "wl-dump": {
        "wl-dump -f png -c 3 -o 'picture-{index:06d}' in.tar": "three images",
        "wl-dump -f txt -c 10 -o '{key}' in.tar": "ten texts, named after their keys",
    },
    "wl-info": {"wl-info in.tar": "the first 1000 samples", "wl-info -c 0 in-{0..3}.tar": "all samples"},
    "wl-test": {
        "wl-test in.tar": "how fast ten batches are read",
        "wl-test --decode rgb8 --batchsize 16 --processes 2 in-{0..3}.tar": "with decoding and two workers",
    },
    "wl-show": {"wl-show in.tar": "ten samples", "wl-show -f png -s 5 in.tar": "images, from the sixth sample on"},
    "tar2tsv": {
        "tar2tsv -f cls in.tar": "keys and classes, with a header",
        "tar2tsv -f 'cls txt' --nokey --noheader in.tar": "values only",
    },
    "tar2json": {
        "tar2json -k 'cls txt' < in.tar": "one line per sample",
        "tar2json -a -f yaml < in.tar": "all fields, one YAML document per sample",
    },
    "tarfirst": {
        "tarfirst in.tar > picture.png": "the first image",
        "tarfirst -f txt -S '_[\"cls\"] == 7' in.tar": "the first text of class 7",
    },
    "tarshow": {"tarshow -c 2 in.tar": "two samples, one line per field", "tarshow -f png -c 1 in.tar": "an image"},
    "tarcat": {
        "tarcat in-{0..3}.tar > all.tar": "four archives into one",
        "cat in.tar | tarcat -c 10 > small.tar": "the first ten samples",
    },
    "tarmix": {
        "tarmix mix.yaml -o mixed.tar": "mix the sources in the file",
        "tarmix -c 100 --seed 1 mix.yaml > mixed.tar": "a hundred samples, the same every time",
    },
    "tarcreate": {
        "tarcreate plan.csv > out.tar": "a table with the columns __key__, @png (a file name) and cls",
        "tarcreate -C pictures plan.tsv -o out.tar": "the files are in a folder",
    },
    "lines2tar": {
        "lines2tar < text.txt > out.tar": "one sample per line, in txt",
        "lines2tar -k 'txt cls' --keyformat 'line{:06d}' text.tsv > out.tar": "two fields, separated by tabs",
    },
    "tarsplit": {
        "tar -cf - --sort=name -C pictures . | tarsplit -s 1e9 -o train --maxshards 2": "two shards of 1 GB",
        "tarsplit -n 1000 -C 'cp {abspath} up/' -o train in.tar": "a command for each shard, which is then deleted",
    },
    "tarp create": {
        "tarp create recipe -o out.tar": "lines of NAME SOURCE",
        "printf 'a.png photo.png\\na.cls text:7\\n' | tarp create - -o out.tar": "one sample",
    },
    "tarp cat": {
        "tarp cat -s 100 in-{0..3}.tar -o - > all.tar": "four archives, shuffled a little",
        "tarp cat -f 'png label:cls' --slice 0:10 in.tar -o ten.tar": "ten samples, a field renamed",
    },
    "tarp split": {
        "tarp split -c 1000 -o train-%06d.tar in.tar": "a thousand samples each",
        "tarp split -s 1e9 -p 'cp %s up/' -o train-%06d.tar in.tar": "a command for each shard",
    },
}
