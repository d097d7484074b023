"""What Zhou, Xiong, Yuan and Hoi (2021) claim, and what became of it here: lines of the ledger."""

from __future__ import annotations

from noiseproof_papers.ledger import Line

TITLE = (
    'SANE: Zhou, Xiong, Yuan and Hoi, "A Theory-Driven Self-Labeling Refinement Method for Contrastive Representation '
    'Learning", NeurIPS 2021'
)
_KNN = "CIFAR-10, 50-NN"
_THEORY = "pytest tests/papers/test_contrast.py"

LINES = (
    Line(
        "Abstract", "refined labels and momentum mixup make contrastive features better than MoCo's", "not shown at this size",
        "30 epochs of resnet8: momentum mixup helps a little on CIFAR-10, p and q do not",
        f"`sane` − `moco`, k-NN: {{sane-tables-small | sane: p, q, momentum mixup minus moco | {_KNN}}} on CIFAR-10, "
        "{sane-tables-small | sane: p, q, momentum mixup minus moco | Fashion-MNIST, 50-NN} on Fashion-MNIST",
    ),
    Line(
        "Theorem 1", "wrong labels cost in proportion to how wrong they are", "refuted",
        "part 1 quotes Bernstein's bound with a square too many; part 2 drops a sign and divides by the number of keys, and the "
        "gap is no measure of harm: it is negative in the paper's own example",
        "Q − Q̃ at a = 0.4: {contrast-theorem1-paper | 0.4 | Q − Q̃}, as printed "
        "{contrast-theorem1-paper | 0.4 | printed}; what the labels cost: {contrast-theorem1-paper | 0.4 | cost}",
    ),
    Line(
        "Theorem 2", "refined labels recover the true ones from t₀ on, for α_t ≥ 1 − ¾δ", "refuted",
        "t₀ needs 1/(1 − α), not its logarithm; α ≥ 1 − ¾δ is not enough; with ε > 0 it cannot hold for ever. Other crops' "
        "guesses do what it promises",
        "α = 0.99: {contrast-theorem2-paper | clock, α = 0.99 | outcome}; two labels: "
        "{contrast-theorem2-paper | recovery, 2 labels, δ = 2 | outcome}",
    ),
    Line("Theorem 3", "spectrum of the Jacobian at the samples", "reproduced", "quoted; checked with early stopping", command="pytest tests/papers/test_clusters.py"),
    Line("Theorem 4", "the same for clustered data", "reproduced", "quoted (and called Corollary 4); checked with early stopping", command="pytest tests/papers/test_clusters.py"),
    Line("Theorem 5", "near inputs with different labels force the weights far away", "reproduced", "quoted: Theorem 2.4 of early stopping", command="pytest tests/papers/test_clusters.py"),
    Line("Theorem 6", "descent with refined labels contracts", "refuted", "for α_t ≥ 1 − σ²/(4β²) it does not at the rate stated; any α_t < 1 contracts, by 1 − ¼(1 − α_t)ησ²", command=_THEORY),
    Line("Theorem 7", "f is within 4ρ of the true labels for t ≥ t₀, ε = 0", "refuted", "t₀ is too early, as in Theorem 2", "|f − y*|/4ρ, α = 0.999: {contrast-theorem2-paper | clock, α = 0.999 | outcome}"),
    Line("Theorem 8", "descent from near crops stays near that from the samples, t ≤ t₀", "not shown at this size", "as Theorem 6.12 of early stopping, whose lemma is false for large W", command="pytest tests/papers/test_clusters.py"),
    Line(
        "Table 1", "SANE above MoCo v2 and others on CIFAR-10, by k-NN and linear", "not shown at this size",
        "the paper trains ResNet-50 for 2,000 epochs; rivals other than MoCo are not implemented",
        f"strong − `moco`: k-NN {{sane-tables-small | sane, strong views minus moco | {_KNN}}}, linear "
        "{sane-tables-small | sane, strong views minus moco | CIFAR-10, linear}",
    ),
    Line("Table 2", "top-1 accuracy on ImageNet", "not attempted", "needs 75 to 198 hours on 8 GPUs; the recipes `sane-*-imagenet` and `probe --protocol imagenet` are there, and have not been run"),
    Line("Table 3", "transfer to VOC and COCO: classification and detection", "not attempted", "no detector here; the paper uses detectron2"),
    Line(
        "Table 4", "p, q and momentum mixup each help", "not shown at this size", "only momentum mixup, and not beyond the spread; run with weak views",
        f"− `moco`, k-NN: p {{sane-tables-small | p minus moco | {_KNN}}}, q {{sane-tables-small | q minus moco | {_KNN}}}, "
        f"momentum mixup {{sane-tables-small | momentum mixup (p=False, q=False) minus moco | {_KNN}}}",
    ),
    Line(
        "Table 5", "λ = 0.5 is best, and the choice matters little", "shape only", "on Fashion-MNIST; on CIFAR-10 all λ are alike",
        "λ = 1 − λ = 0.5, k-NN: {sane-tables-small | sane, λ = 1 minus sane: p, q, momentum mixup | Fashion-MNIST, 50-NN} on "
        f"Fashion-MNIST, {{sane-tables-small | sane, λ = 1 minus sane: p, q, momentum mixup | {_KNN}}} on CIFAR-10",
    ),
    Line(
        "Table 6", "momentum mixup above vanilla mixup, and strong views help it alone", "shape only", "the order is there, within the spread; the ImageNet column was not run",
        f"momentum − vanilla, k-NN: weak {{sane-tables-small | momentum mixup (p=False, q=False) minus vanilla mixup | {_KNN}}}, strong "
        f"{{sane-tables-small | momentum mixup, strong views minus vanilla mixup, strong views | {_KNN}}}",
    ),
    Line(
        "Ours", "a SANE start helps `sop` the more the worse the labels are", "shape only", "beyond the spread of three runs at 50 % alone",
        "SANE − random start: {sane-init-small | sop, SANE start minus sop, random start | symmetric:0.2}, "
        "{sane-init-small | sop, SANE start minus sop, random start | symmetric:0.5}, "
        "{sane-init-small | sop, SANE start minus sop, random start | symmetric:0.8} at 20, 50, 80 %",
    ),
)  # fmt: skip
