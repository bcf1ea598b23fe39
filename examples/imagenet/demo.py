"""The whole way on a small set of real images: folders, shards, and a training on each of them.

    ./run demo

main-orig.py reads the folders and main-wds.py the shards; both reach the same accuracy, but for chance.
"""

import argparse
import os
import subprocess
import sys
import tempfile

from demo_images import make_images

HERE = os.path.dirname(os.path.abspath(__file__))
CHANCE = 25  # two trainings that differ only in the order of the images may differ by so many %
SMALL = ["--arch", "resnet10", "--size", "32", "--batch-size", "32", "--lr", "0.05", "--workers", "1"]
SMALL += ["--print-freq", "20", "--seed", "0"]


def main(arguments=None):
    """Make images and shards, train twice, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=int, default=3000, help="images to train with (3000)")
    parser.add_argument("--val", type=int, default=600, help="images to test with (600)")
    parser.add_argument("--epochs", type=int, default=8, help="passes over the images (8)")
    parser.add_argument("--demo", action="store_true", help="nothing else: this is what it does")
    args = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="imagenet-") as folder:
        data, shards = os.path.join(folder, "data"), os.path.join(folder, "shards")
        print(f"images   {make_images(data, args.train, args.val)}", flush=True)
        program("makeshards.py", "--data", data, "--shards", shards, "--maxcount", "250")
        found = {}
        for name, place in (("main-orig.py", [data]), ("main-wds.py", ["--shards", shards])):
            print(f"training {name}", flush=True)
            words = [*place, "--epochs", str(args.epochs)]
            found[name] = accuracy_in(program(name, *SMALL, *words, cwd=folder))
    for name, accuracy in found.items():
        print(f"{name:12} top-1 {accuracy:.1f}%")
    if abs(found["main-orig.py"] - found["main-wds.py"]) > CHANCE:
        sys.exit("the two differ by more than chance explains")


def program(name, *words, cwd=None):
    """Run a program of this folder, which writes its checkpoints into `cwd`; show what it says, and return it."""
    one = {"OMP_NUM_THREADS": "1"}  # the network is too small to share among cores that also load
    command = [sys.executable, os.path.join(HERE, name), *words]
    lines = []
    with subprocess.Popen(command, cwd=cwd, env={**os.environ, **one}, stdout=subprocess.PIPE, text=True) as process:
        for line in process.stdout:
            print("        ", line, end="", flush=True)
            lines.append(line)
    if process.returncode:
        sys.exit(f"{name} failed")
    return lines


def accuracy_in(lines):
    """The last top-1 accuracy that a training says, in percent."""
    return float([line for line in lines if "* Acc@1" in line][-1].split()[2])


if __name__ == "__main__":
    main()
