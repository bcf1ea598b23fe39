"""Residual networks (He et al., 2015) with the layer names of torchvision, whose weights they therefore load.

Enough of them that the programs need nothing but PyTorch: resnet18, resnet34, resnet50, resnet101, and `resnet10`, a
small one for demonstrations.
"""

from torch import nn


class BasicBlock(nn.Module):
    """Two 3 x 3 convolutions, and a way around them."""

    expansion = 1

    def __init__(self, inputs, planes, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, planes, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, planes, stride)
        nn.init.zeros_(self.bn2.weight)  # it begins as its shortcut, and the steps of a deep network stay small

    def forward(self, x):
        """Feature maps to feature maps."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class Bottleneck(nn.Module):
    """A 3 x 3 convolution between two of 1 x 1, and a way around them."""

    expansion = 4

    def __init__(self, inputs, planes, stride):
        super().__init__()
        outputs = planes * self.expansion
        self.conv1 = nn.Conv2d(inputs, planes, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.conv3 = nn.Conv2d(planes, outputs, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(outputs)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = shortcut(inputs, outputs, stride)
        nn.init.zeros_(self.bn3.weight)  # it begins as its shortcut, and the steps of a deep network stay small

    def forward(self, x):
        """Feature maps to feature maps."""
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet(nn.Module):
    """Images to one number for each class."""

    def __init__(self, block, depths, num_classes=1000, width=64):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, stride=2, padding=1)
        inputs = width
        for number, depth in enumerate(depths):
            planes, stride = width << number, 1 if number == 0 else 2
            blocks = []
            for n in range(depth):
                blocks.append(block(inputs, planes, stride if n == 0 else 1))
                inputs = planes * block.expansion
            setattr(self, f"layer{number + 1}", nn.Sequential(*blocks))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(inputs, num_classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images):
        """N x 3 x H x W, any size, to N x classes."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(self.avgpool(x).flatten(1))


def shortcut(inputs, outputs, stride):
    """The way around a block that changes the number of channels or the size."""
    if stride == 1 and inputs == outputs:
        return None
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))


def resnet10(num_classes=1000):
    """A small one, a quarter as wide as the others: 0.3 million weights."""
    return ResNet(BasicBlock, (1, 1, 1, 1), num_classes, width=16)


def resnet18(num_classes=1000):
    """11.7 million weights."""
    return ResNet(BasicBlock, (2, 2, 2, 2), num_classes)


def resnet34(num_classes=1000):
    """21.8 million weights."""
    return ResNet(BasicBlock, (3, 4, 6, 3), num_classes)


def resnet50(num_classes=1000):
    """25.6 million weights."""
    return ResNet(Bottleneck, (3, 4, 6, 3), num_classes)


def resnet101(num_classes=1000):
    """44.5 million weights."""
    return ResNet(Bottleneck, (3, 4, 23, 3), num_classes)


NETWORKS = {each.__name__: each for each in (resnet10, resnet18, resnet34, resnet50, resnet101)}
