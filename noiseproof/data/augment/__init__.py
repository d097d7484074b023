"""Batched augmentation: each operation works on a whole (B, C, H, W) batch, with its own parameters for each example.

    augment = policy("simclr", image_size=32)
    view = augment(images, generator)          # uint8 or float images -> float images
    inputs = normalize(view)                   # Normalize(mean, std)

Any device, and the same seed gives the same parameters on all of them: tensor operations without a loop over examples.
Files: geometry.py and resize.py (where pixels come from), colour.py (what they show), normalize.py, policy.py (chains,
RandAugment, named policies); base.py and filters.py hold what they share.
"""

from noiseproof.data.augment.base import Augmentation as Augmentation
from noiseproof.data.augment.base import Operation as Operation
from noiseproof.data.augment.base import to_float as to_float
from noiseproof.data.augment.colour import ColorJitter as ColorJitter
from noiseproof.data.augment.colour import GaussianBlur as GaussianBlur
from noiseproof.data.augment.colour import RandomGrayscale as RandomGrayscale
from noiseproof.data.augment.colour import ToFloat as ToFloat
from noiseproof.data.augment.colour import adjust_brightness as adjust_brightness
from noiseproof.data.augment.colour import adjust_contrast as adjust_contrast
from noiseproof.data.augment.colour import adjust_hue as adjust_hue
from noiseproof.data.augment.colour import adjust_saturation as adjust_saturation
from noiseproof.data.augment.colour import adjust_sharpness as adjust_sharpness
from noiseproof.data.augment.colour import autocontrast as autocontrast
from noiseproof.data.augment.colour import equalize as equalize
from noiseproof.data.augment.colour import gaussian_blur as gaussian_blur
from noiseproof.data.augment.colour import grayscale as grayscale
from noiseproof.data.augment.colour import invert as invert
from noiseproof.data.augment.colour import luma as luma
from noiseproof.data.augment.colour import posterize as posterize
from noiseproof.data.augment.colour import solarize as solarize
from noiseproof.data.augment.geometry import Cutout as Cutout
from noiseproof.data.augment.geometry import RandomCrop as RandomCrop
from noiseproof.data.augment.geometry import RandomFlip as RandomFlip
from noiseproof.data.augment.geometry import affine as affine
from noiseproof.data.augment.geometry import affine_matrix as affine_matrix
from noiseproof.data.augment.geometry import crop as crop
from noiseproof.data.augment.geometry import cutout as cutout
from noiseproof.data.augment.geometry import flip as flip
from noiseproof.data.augment.geometry import rotate as rotate
from noiseproof.data.augment.geometry import shear as shear
from noiseproof.data.augment.geometry import translate as translate
from noiseproof.data.augment.normalize import Normalize as Normalize
from noiseproof.data.augment.policy import KEEP_COLOURS as KEEP_COLOURS
from noiseproof.data.augment.policy import OPERATIONS as OPERATIONS
from noiseproof.data.augment.policy import POLICIES as POLICIES
from noiseproof.data.augment.policy import STRONG as STRONG
from noiseproof.data.augment.policy import Compose as Compose
from noiseproof.data.augment.policy import RandAugment as RandAugment
from noiseproof.data.augment.policy import apply_each as apply_each
from noiseproof.data.augment.policy import policy as policy
from noiseproof.data.augment.resize import RandomResizedCrop as RandomResizedCrop
from noiseproof.data.augment.resize import resized_crop as resized_crop
