"""The networks the papers train, at CIFAR/MNIST size and at full size.

Each is a `Backbone`: inputs (B, ...) -> `features` (B, F) -> `head` -> logits (B, K), so that
`model(x) == model.head(model.features(x))`, with F = `model.num_features`.

    model = models.build("resnet34", (3, 32, 32), 10)

Images of one channel work everywhere. Weights come from PyTorch's global generator: `torch.manual_seed` fixes them.
"""

from noiseproof.models.backbone import Backbone, prefers_channels_last
from noiseproof.models.efficientnet import EfficientNetLite0
from noiseproof.models.inception import InceptionResNetV2
from noiseproof.models.quick import QuickNet
from noiseproof.models.registry import Row, build, from_text, names, table
from noiseproof.models.resnet import PreActResNet, ResNet
from noiseproof.models.shallow import ShallowNet
from noiseproof.models.small import CNN3, MLP, Conv4, LeNet
from noiseproof.models.vgg import VGG

__all__ = [
    "CNN3",
    "MLP",
    "VGG",
    "Backbone",
    "Conv4",
    "EfficientNetLite0",
    "InceptionResNetV2",
    "LeNet",
    "PreActResNet",
    "QuickNet",
    "ResNet",
    "Row",
    "ShallowNet",
    "build",
    "from_text",
    "names",
    "prefers_channels_last",
    "table",
]
