"""Writes digits.csv.gz from the copy of the digits that scikit-learn ships.

    python3 -m venv venv && venv/bin/pip install scikit-learn
    venv/bin/python data/export_digits.py data/digits.csv.gz

The same bytes every time: the order follows from the seed, the gzip header has no date.
"""

import gzip
import json
import random
import sys

from sklearn import datasets

SEED = 1
TEST = 360  # the last images: never trained on


def main(path):
    digits = datasets.load_digits()
    order = list(range(len(digits.target)))
    random.Random(SEED).shuffle(order)  # writers follow each other in the original order
    header = {
        "format": "superneurons-data",
        "version": "0.1",
        "name": "digits",
        "shape": [1, 8, 8],
        "classes": 10,
        "most": 16,
        "train": len(order) - TEST,
        "test": TEST,
        "origin": "Optical Recognition of Handwritten Digits (E. Alpaydin, C. Kaynak, UCI Machine "
        "Learning Repository, 1998, CC BY 4.0): its test set, as sklearn.datasets.load_digits has "
        f"it (scikit-learn, BSD-3-Clause); order shuffled by data/export_digits.py, seed {SEED}",
    }
    lines = [json.dumps(header, separators=(",", ":"))]
    for i in order:
        pixels = ",".join(str(int(pixel)) for pixel in digits.data[i])
        lines.append(f"{digits.target[i]},{pixels}")
    text = "\n".join(lines) + "\n"
    with open(path, "wb") as file:
        with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=9, mtime=0) as out:
            out.write(text.encode())


if __name__ == "__main__":
    main(sys.argv[1])
