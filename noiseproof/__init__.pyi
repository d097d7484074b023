# The public names. `import noiseproof` reads this list and imports each name when it is first used.
from noiseproof.data import LabeledData as LabeledData
from noiseproof.data import augment as augment
from noiseproof.data import load as load
from noiseproof.data import load_pair as load_pair
from noiseproof.data import noise as noise
from noiseproof.errors import InputError as InputError
from noiseproof.interrupt import Interrupted as Interrupted
from noiseproof.loop import fit as fit
from noiseproof.method import Batch as Batch
from noiseproof.method import Beliefs as Beliefs
from noiseproof.method import Method as Method
from noiseproof.method import Run as Run
from noiseproof.method import Selection as Selection
from noiseproof.method import Wrapper as Wrapper
from noiseproof.methods.co_teaching import CoTeaching as CoTeaching
from noiseproof.methods.correction import BackwardCorrection as BackwardCorrection
from noiseproof.methods.correction import BackwardLoss as BackwardLoss
from noiseproof.methods.correction import ForwardCorrection as ForwardCorrection
from noiseproof.methods.correction import ForwardLoss as ForwardLoss
from noiseproof.methods.cross_entropy import CrossEntropy as CrossEntropy
from noiseproof.methods.early_stop import EarlyStop as EarlyStop
from noiseproof.methods.elr import ELR as ELR
from noiseproof.methods.elr import ELRLoss as ELRLoss
from noiseproof.methods.gce import GCE as GCE
from noiseproof.methods.gce import GCELoss as GCELoss
from noiseproof.methods.mixup import MixUp as MixUp
from noiseproof.methods.sce import SCE as SCE
from noiseproof.methods.sce import SCELoss as SCELoss
from noiseproof.methods.sop import SOP as SOP
from noiseproof.methods.sop import SOPLoss as SOPLoss
from noiseproof.methods.sop_plus import SOPPlus as SOPPlus
from noiseproof.predictor import Predictor as Predictor
from noiseproof.predictor import load_model as load_model
from noiseproof.recipes import recipe as recipe
from noiseproof.result import FitResult as FitResult

__version__: str
