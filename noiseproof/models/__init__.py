"""The networks the papers train, at CIFAR/MNIST size and at full size.

Each is a `Backbone`: inputs (B, ...) -> `features` (B, F) -> `head` -> logits (B, K), so that
`model(x) == model.head(model.features(x))`, with F = `model.num_features`.

    model = models.build("resnet34", (3, 32, 32), 10)

Images of one channel work everywhere. Weights come from PyTorch's global generator: `torch.manual_seed` fixes them.
"""

from noiseproof.models.backbone import Backbone as Backbone
from noiseproof.models.backbone import prefers_channels_last as prefers_channels_last
from noiseproof.models.efficientnet import EfficientNetLite0 as EfficientNetLite0
from noiseproof.models.inception import InceptionResNetV2 as InceptionResNetV2
from noiseproof.models.quick import QuickNet as QuickNet
from noiseproof.models.registry import Row as Row
from noiseproof.models.registry import build as build
from noiseproof.models.registry import from_text as from_text
from noiseproof.models.registry import names as names
from noiseproof.models.registry import table as table
from noiseproof.models.resnet import PreActResNet as PreActResNet
from noiseproof.models.resnet import ResNet as ResNet
from noiseproof.models.shallow import ShallowNet as ShallowNet
from noiseproof.models.small import CNN3 as CNN3
from noiseproof.models.small import MLP as MLP
from noiseproof.models.small import Conv4 as Conv4
from noiseproof.models.small import LeNet as LeNet
from noiseproof.models.vgg import VGG as VGG
