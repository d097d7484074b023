"""What Li, Soltanolkotabi and Oymak (2020) claim, and what became of it here: lines of the ledger."""

from __future__ import annotations

from noiseproof_papers.ledger import Line

TITLE = (
    'Early stopping: Li, Soltanolkotabi and Oymak, "Gradient Descent with Early Stopping is Provably Robust to Label '
    'Noise for Overparameterized Neural Networks", AISTATS 2020'
)
_BOUNDS = "pytest tests/papers/test_clusters.py"

LINES = (
    Line(
        "Abstract", "stopped early, gradient descent is robust to a constant share of wrong labels", "reproduced",
        "on clustered data; on images the moment matters, and `early_stop` finds it by agreement",
        "Points lost to the best epoch: last epoch {early-stopping-small | last epoch | digits}, `agreement` "
        "{early-stopping-small | agreement | digits} (digits)",
    ),
    Line(
        "Abstract", "to fit wrong labels the weights must go far from the start", "reproduced", "bounds and networks: Theorem 3.3, Figure 3",
        "‖θ − θ₀‖/‖θ₀‖ where 99 % are fitted, lenet: {early-fig3-small | 0 | lenet: 99 %} without corruption, "
        "{early-fig3-small | 50 | lenet: 99 %} with half",
    ),
    Line(
        "Theorem 2.2", "the true labels of ε₀-clustered data are found after τ₀ steps", "not shown at this size",
        "with its proof's constants it needs k ≥ 10¹⁶ and ε₀ ≤ 10⁻¹⁰; the proof has two gaps, which can be closed",
        command=_BOUNDS,
    ),
    Line(
        "Theorem 2.3", "the same for ε₀ = 0", "reproduced", "with the constants of its proof; (6.41)'s log K is missing in it",
        "wrong after τ₀, k as the theorem asks: {early-theorem-paper | theorem, 2, 2 | wrong}; distance of its bound: "
        "{early-theorem-paper | theorem, 2, 2 | of bound}",
    ),
    Line(
        "Theorem 2.4", "two near inputs with different labels force the weights far away", "reproduced",
        "no violation in 150 trials; the printed constant is hundreds of times below what its proof gives", command=_BOUNDS,
    ),
    Line(
        "Lemma 2.5", "the norm of weights that fit s wrong labels is at least √s δ/(5Γε₀)", "reproduced",
        "no violation in 100 trials; its reading as a distance does not follow", command=_BOUNDS,
    ),
    Line(
        "Theorem 3.2", "descent with a Jacobian of low rank ends within 2‖Π₊e‖_∞ of the true labels", "reproduced",
        "its last inequality lacks a factor 2", command=_BOUNDS,
    ),
    Line(
        "Theorem 3.3", "weights that fit the nuisance part of the residual are far away", "reproduced",
        "no violation in 150 trials, attained as ‖D‖ → 0; on all of ℝᵖ its ε is not small", command=_BOUNDS,
    ),
    Line(
        "Theorem 6.7", "norm, smoothness and least singular value of the Jacobian at the centres", "reproduced", "with the constants of its proof", command=_BOUNDS,
    ),
    Line(
        "Theorem 6.8", "the same of clustered inputs, over S₊ and S₋", "reproduced", "at random starts, with the constants of its proof", command=_BOUNDS,
    ),
    Line(
        "Theorem 6.12", "descent from near inputs stays near that from the centres", "not shown at this size", "rests on Lemma 6.11, which is false for large W (a W with 900 times its bound)", command=_BOUNDS,
    ),
    Line(
        "Theorem 6.13", "Theorem 2.2 with its constants", "not shown at this size",
        "as Theorem 2.2; its proof adds 4ρ ≤ δ/2 and δ/4 and calls it below δ/2; a longer τ₀ saves it (`clustered` in the tests)", command=_BOUNDS,
    ),
    Line(
        "Figure 1", "on MNIST full training fits the noise, a few epochs predict the true labels", "shape only",
        "3,000 images of 14 × 14 pixels",
        "test at 50 % corruption: full {early-fig1-small | full training | 50}, stopped "
        "{early-fig1-small | stopped by held-out noisy labels | 50} (epoch)",
    ),
    Line("Figure 2", "a picture of the data model", "not attempted", "nothing to measure; the model is Definitions 1.1 and 1.2 in clusters.py"),
    Line(
        "Figure 3", "more corruption takes a network farther from its start", "reproduced", "at the paper's 3,000 images",
        "lenet, 95 % fitted: {early-fig3-small | 0 | lenet: 95 %}, {early-fig3-small | 25 | lenet: 95 %}, "
        "{early-fig3-small | 50 | lenet: 95 %}, {early-fig3-small | 75 | lenet: 95 %} at 0, 25, 50, 75 %",
    ),
    Line(
        "Figure 4", "stopped early, losses of right and wrong labels are approximately separable", "shape only",
        "wrong ones lie to the right, with an overlap: a network that is right on a third of the images",
        "AUROC at 50 %: early {early-fig4-small | 50, early | AUROC of the loss}, late "
        "{early-fig4-small | 50, late | AUROC of the loss}",
    ),
    Line(
        "Figure 5", "the Jacobian's spectrum is bimodal, before and after training alike", "shape only",
        "few large values in all; a gap before training only, and twice as many after it",
        "above a tenth of the top one, all classes: {early-fig5-small | all classes | at initialisation} before, "
        "{early-fig5-small | all classes | after training} after",
    ),
    Line(
        "Figure 6", "on clustered data iteration 80 has the true labels, 4500 the noise", "reproduced",
        "with ReLU; softplus, which the theorems are about, has hardly begun to fit the noise by then",
        "off the true label, ReLU: {early-fig6-paper | relu, 80 | true labels, % off} % at 80, "
        "{early-fig6-paper | relu, 4500 | true labels, % off} % at 4500 (worst)",
    ),
    Line(
        "Table 1", "few singular values are large, initially and in the end", "shape only",
        "initially; with the batch statistics of the examples six times as many, after training a sixth of all",
        "r/N: {early-table1-small | all classes (150 images), initial | r/N, %} % initially, "
        "{early-table1-small | all classes (150 images), trained | r/N, %} % trained",
    ),
)  # fmt: skip
