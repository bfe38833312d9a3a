"""What SuperNeurons (Wang et al., PPoPP 2018, doi 10.1145/3178487.3178491) prints.

Tables are the paper's own digits. DIGITISED ones are read off the vector figures by coordinates:
to about 0.3 MiB in figure 10, 10 MiB in figure 2, 0.3 % in figure 8; figure 14 labels its points.
The paper's MB are MiB. "" or a missing key: the paper prints nothing there.
"""

from __future__ import annotations

from typing import Any

NETWORKS = ("alexnet", "vgg16", "inception_v4", "resnet50", "resnet101", "resnet152")
FRAMEWORKS = ("caffe", "mxnet", "torch", "tensorflow", "superneurons")

# Table 1: recomputed layers and peak (MiB) by strategy. Batch 200 of AlexNet (section 4.1); that of
# ResNet-50 is not stated, 32 gives 455.125.
TABLE1 = {
    ("alexnet", 200): {"speed": (14, 993.018), "memory": (23, 886.23), "cost_aware": (17, 886.23)},
    ("resnet50", 32): {"speed": (84, 455.125), "memory": (118, 401.0), "cost_aware": (85, 401.0)},
}

# Table 2: images per second with cudaMalloc and with the pool. Batch 128 of AlexNet, 16 of the rest.
TABLE2 = {
    "alexnet": (359.4, 401.6),
    "vgg16": (12.1, 14.4),
    "inception_v4": (6.77, 10.0),
    "resnet50": (21.5, 32.9),
    "resnet101": (11.3, 18.95),
    "resnet152": (7.46, 13.2),
}

# Table 3: AlexNet, GB copied in a training step without and with the tensor cache, by batch.
TABLE3 = {
    256: (2.56, 0.0),
    384: (3.72, 0.0),
    512: (4.88, 0.0),
    640: (6.03, 0.0),
    896: (8.35, 0.0),
    1024: (9.50, 0.88),
}

# Table 4: the deepest ResNet (n1=6, n2=32, n4=6, n3 varied) at batch 16 on 12 GB.
TABLE4 = {"caffe": 148, "mxnet": 480, "torch": 152, "tensorflow": 592, "superneurons": 1920}

# Table 5: the largest batch on 12 GB, in the order of FRAMEWORKS.
TABLE5 = {
    "alexnet": (768, 768, 1024, 1408, 1792),
    "vgg16": (48, 64, 48, 80, 224),
    "inception_v4": (16, None, None, 64, 240),
    "resnet50": (24, 80, 32, 128, 384),
    "resnet101": (16, 48, 16, 80, 256),
    "resnet152": (16, 32, 16, 48, 176),
}

# Figure 13, DIGITISED: GB that the batches of table 5 need, in the order of FRAMEWORKS.
FIGURE13 = {
    "alexnet": (8.6, 11.5, 12.9, 15.8, 27.8),
    "vgg16": (11.2, 19.5, 13.0, 15.9, 54.5),
    "inception_v4": (None, None, None, 37.4, 139.5),
    "resnet50": (9.3, 32.6, 13.2, 37.2, 123.2),
    "resnet101": (7.1, 27.5, 11.0, 35.5, 137.6),
    "resnet152": (7.2, 27.5, 10.1, 30.4, 143.6),
}

# Figure 2, DIGITISED: MiB of the whole network without and with convolution workspaces, and the
# speed that they bring. Batch 200 of AlexNet, 32 of the rest.
FIGURE2 = {
    "alexnet": (3044, 5660, 2.01),
    "vgg16": (7370, 17271, 1.59),
    "vgg19": (7934, 22743, 1.59),
    "inception_v4": (17776, 44243, 1.46),
    "resnet50": (8418, 8600, 1.18),
    "resnet101": (12795, 13119, 1.15),
    "resnet152": (18107, 18551, 1.10),
}

# Figure 8, DIGITISED: % of time (forward and backward) and % of memory by kind of layer.
FIGURE8_KINDS = ("CONV", "FC", "DROPOUT", "SOFTMAX", "POOL", "ACT", "BN", "LRN")
FIGURE8_TIME = {
    "alexnet": (62.1, 9.2, 8.1, 5.2, 5.2, 8.1, None, 2.3),
    "inception_v4": (49.0, 0.4, 0.8, 0.5, 2.5, 18.8, 18.8, None),
    "resnet50": (48.8, 1.1, None, 1.6, 0.7, 17.5, 19.0, None),
    "resnet101": (50.1, 0.7, None, 1.1, 0.4, 17.7, 18.4, None),
    "resnet152": (49.0, 0.4, None, 0.9, 0.2, 18.5, 19.0, None),
    "vgg16": (53.0, 8.7, 8.7, 4.9, 8.2, 16.4, None, None),
    "vgg19": (57.1, 8.4, 6.4, 3.9, 6.4, 17.7, None, None),
}
FIGURE8_MEMORY = {
    "alexnet": (21.0, 0.7, 0.3, None, 18.6, 31.7, None, 27.6),
    "inception_v4": (39.2, None, None, None, 12.1, 24.4, 24.4, None),
    "resnet50": (33.5, None, None, None, 2.2, 29.7, 34.6, None),
    "resnet101": (33.4, None, None, None, 1.5, 30.9, 34.2, None),
    "resnet152": (33.4, None, None, None, 1.1, 31.6, 33.9, None),
    "vgg16": (37.3, 0.1, None, None, 15.8, 46.8, None, None),
    "vgg19": (38.3, 0.1, None, None, 14.6, 47.0, None, None),
}

# Figure 10, DIGITISED: AlexNet at batch 200, MiB and tensors alive at each layer step.
FIGURE10_PEAKS = {"baseline": 2189.437, "a": 1489.355, "b": 1132.155, "c": 886.385}
FIGURE10 = {
    "a": (
        "221.8/1 443.4/2 664.8/3 718.2/4 860.7/5 1003.0/6 1145.2/7 1178.2/8 1227.7/9 1277.4/10 "
        "1326.8/11 1376.3/12 1409.3/13 1442.3/14 1449.3/15 1452.5/16 1455.5/17 1458.8/18 1461.8/19 "
        "1465.0/20 1468.1/21 1468.8/22 1469.7/23 1469.7/23 1472.0/23 1471.1/22 1468.1/21 1465.0/20 "
        "1461.8/19 1458.8/18 1459.5/17 1489.4/17 1475.3/15 1458.7/14 1425.7/13 1376.3/12 1326.8/11 "
        "1260.9/10 1353.7/10 1287.5/8 1145.2/7 914.1/6 992.9/6 886.1/4 664.8/3 339.7/2"
    ),
    "b": (
        "221.8/1 443.2/2 443.2/2 496.6/3 639.1/4 781.3/5 781.3/5 814.3/6 863.7/7 913.4/8 913.4/8 "
        "962.9/9 946.4/9 979.4/10 953.4/10 956.4/11 959.7/12 959.7/12 962.7/13 965.9/14 965.9/14 "
        "966.7/15 967.4/16 970.6/17 972.9/17 972.0/16 972.0/16 969.0/15 965.9/14 995.7/14 996.6/13 "
        "1076.0/14 1061.9/12 1094.8/12 1061.8/11 1012.4/10 962.9/9 1039.2/9 1132.0/9 1066.2/7 "
        "923.7/6 914.0/6 992.9/6 886.2/4 664.9/3 339.8/2"
    ),
    "c": (
        "221.7/1 443.2/2 664.7/3 496.7/3 417.4/3 506.3/3 648.7/4 539.5/4 446.4/4 462.9/4 512.5/5 "
        "512.5/5 545.5/6 529.0/6 536.0/7 506.1/7 502.2/7 505.4/8 505.4/8 505.4/8 508.4/9 506.1/9 "
        "503.8/9 503.8/9 512.4/11 511.7/10 508.4/9 511.7/10 508.4/9 505.4/8 546.2/9 576.0/9 "
        "562.0/7 595.0/7 562.0/6 562.0/6 512.6/5 763.9/7 857.0/7 791.2/5 648.9/4 471.0/4 770.9/5 "
        "886.1/4 665.0/3 340.0/2"
    ),
}


def figure10(panel: str) -> list[tuple[float, int]]:
    """MiB and tensors alive of a panel, by layer step."""
    pairs = (word.split("/") for word in FIGURE10[panel].split())
    return [(float(mebibytes), int(tensors)) for mebibytes, tensors in pairs]


# Figure 11, DIGITISED: speed with the tensor cache over that without. Batch 128 of AlexNet, else 32.
FIGURE11 = {
    "alexnet": 1.10,
    "vgg16": 1.08,
    "inception_v4": 1.27,
    "resnet50": 1.50,
    "resnet101": 1.46,
    "resnet152": 1.41,
}

# Figure 12, DIGITISED: AlexNet's convolution workspaces (MiB), assigned and wanted where those
# differ; layers that are not named are 0. Batch of (c) and (d) is not stated.
FIGURE12: dict[str, dict[str, Any]] = {
    "a": {"batch": 100, "pool": "3 GB", "2f": 286, "5b": 233, "4b": 349, "3b": 241, "2b": 782},
    "b": {
        "batch": 300,
        "pool": "3 GB",
        "2f": 427,
        "2b": (397, 1358),
        "5b": (0, 943),
        "4b": (0, 1642),
        "3b": (0, 1274),
    },
    "c": {
        "batch": None,
        "pool": "3 GB",
        "images/s": 203,
        "2f": 640,
        "3f": (0, 1208),
        "4f": (0, 1573),
        "5f": (0, 1208),
        "5b": (0, 1208),
        "4b": (0, 2154),
        "3b": (0, 1705),
        "2b": (543, 1934),
    },
    "d": {
        "batch": None,
        "pool": "5 GB",
        "images/s": 240,
        "2f": 640,
        "3f": 1208,
        "4f": (0, 1573),
        "5f": 1208,
        "5b": (0, 1208),
        "4b": (0, 2154),
        "3b": (1208, 1705),
        "2b": (844, 1934),
    },
}

# Figure 14: images per second on a TITAN Xp, by batch (first, distance): label of each point.
FIGURE14_BATCHES = {
    "alexnet": (128, 128),
    "resnet50": (16, 16),
    "vgg16": (16, 16),
    "resnet101": (16, 16),
    "inception_v4": (16, 16),
    "resnet152": (16, 16),
}
FIGURE14 = {
    "alexnet": {
        "superneurons": (1606, 1717, 1746, 1780, 1784, 1627, 1356, 1270, 982, 956),
        "caffe": (1546, 1608, 1619, 1618, 1623, 1608),
        "mxnet": (1155, 1164, 1144, 1136, 1059, 1126),
        "tensorflow": (445, 439, 461, 468, 469, 461, 461, 469, 459, 464),
        "torch": (134, 133, 137, 138, 133, 132, 133, 134),
    },
    "resnet50": {
        "superneurons": (170, 185, 189, 177, 177, 177, 179, 132, 108, 98),
        "mxnet": (164, 180, 184, 180, 186),
        "tensorflow": (81, 98, 97, 95, 99, 98, 100, 101),
        "caffe": (102, 104),
        "torch": (67, 83),
    },
    "vgg16": {
        "superneurons": (107, 120, 125, 122, 111, 105, 92, 94, 72),
        "mxnet": (122, 112, 126, 127),
        "tensorflow": (84, 86, 88, 94, 91),
        "torch": (91, 103, 108),
        "caffe": (85, 94, 95),
    },
    "resnet101": {
        "superneurons": (101, 111, 113, 108, 98, 88, 79),
        "mxnet": (94, 103, 114),
        "tensorflow": (52, 64, 66, 68, 68),
        "caffe": (53,),
        "torch": (62,),
    },
    "inception_v4": {
        "superneurons": (62, 67, 63, 42, 45),
        "tensorflow": (29, 43, 44, 45),
        "caffe": (45,),
    },
    "resnet152": {
        "superneurons": (72, 78, 74, 63, 52),
        "mxnet": (65, 76),
        "tensorflow": (41, 49, 49),
        "caffe": (37,),
        "torch": (43,),
    },
}
