"""What Wei, Ren and Du (2023) claim, and what became of it here: lines of the ledger."""

from __future__ import annotations

from noiseproof_papers.ledger import Line

TITLE = (
    'Label noise and annealing: Wei, Ren and Du, "On the Synergy Between Label Noise and Learning Rate Annealing in '
    'Neural Network Training", OPT 2023'
)
_STEPS = "pytest tests/papers/test_annealing.py"

LINES = (
    Line(
        "Abstract", "label noise and annealing together generalise where either alone does not", "not shown at this size",
        "on the paper's data P is learned better and Q is lost now and then; on images annealing helps label noise, and "
        "large batches are level with both",
        "P-only error, S − LS: {annealing-base-small | P-only: lnsgd-s − lnsgd-ls | base} points; test error, S − LS: "
        "{annealing-base-small | test: lnsgd-s − lnsgd-ls | base} (95 % intervals)",
    ),
    Line(
        "Theorem 4", "LNSGD-LS: test error Õ(p^(3/2))", "not shown at this size",
        "its assumptions hold from d ≈ 10¹² on; P-only errors are as claimed where Q survives, and Q does not in some runs",
        "P-only error (Q-only), runs that ended: {annealing-base-small | lnsgd-ls: P (Q) | base}; lost Q: "
        "{annealing-base-small | lnsgd-ls: runs that lost Q | base}",
    ),
    Line(
        "Theorem 5", "LNSGD-S: test error Ω(p)", "shape only",
        "the order on P-only examples is there, the rate is not: it falls like p^2.7",
        "P-only error, S − LS: {annealing-base-small | P-only: lnsgd-s − lnsgd-ls | base}",
    ),
    Line(
        "Theorem 6", "FBGD-LS: test error Ω(p)", "shape only",
        "as Theorem 5, weaker; full batch had one rate and was not annealed (`fbgd`)",
        "P-only error, FB − LS: {annealing-base-small | P-only: fbgd − lnsgd-ls | base}",
    ),
    Line(
        "Proposition 21", "the noise of a step has mean 0 and variance δ(1 − δ)Γ²", "reproduced", "exactly, with Γ = −1 for every z", command=_STEPS,
    ),
    Line("Proposition 24", "the size of the accumulated noise B_t", "not attempted", "a step of the proof; its data are measured in `annealing-curves`"),
    Line(
        "Proposition 39", "few units change sides between z − ζ and z + ζ", "not attempted",
        "a step of the proof; its triangle inequality leaves no t₁ beyond log d, a martingale bound would",
    ),
    Line("Proposition 40", "a step of Lemma 8's proof", "not attempted", "holds only where Assumption 3 does, from d ≈ 10¹² on"),
    Line("Proposition 41", "a step of Lemma 8's proof", "not attempted", "as Proposition 40"),
    Line("Proposition 43", "sizes of sets of units", "not attempted", "as Proposition 40"),
    Line(
        "Lemmas 7 to 20", "when P and Q are learned", "not shown at this size",
        "at the base the loss falls because Q is half learned, not because P is (95 % intervals)",
        "`lnsgd-ls` at the annealing: loss of examples without P {annealing-curves-small | base, lnsgd-ls, anneal | loss_not_m1}, log 2 = 0.69 if Q were not "
        "learned; P-only error {annealing-curves-small | base, lnsgd-ls, anneal | error_p}",
    ),
    Line(
        "Lemma 44", "label noise walks units apart at z", "refuted",
        "1/m is left out, and one walk moves all units: Y₄ has two values, not a density", command=_STEPS,
    ),
    Line("Figure 1", "a picture of the data", "not attempted", "nothing to measure; `annealing.draw` makes the data"),
    Line(
        "Figure 2", "on CIFAR-100 LNSGD-LS ends above LNSGD-S, and that above FBGD-LS", "not shown at this size",
        "the order is in none of six runs: annealing helps label noise, and large batches are level with the best",
        "ls − s (± over seeds): {annealing-fig2-small | CIFAR-10 | ls − s} on CIFAR-10, "
        "{annealing-fig2-small | Fashion-MNIST | ls − s} on Fashion-MNIST; ls − fbgd: "
        "{annealing-fig2-small | CIFAR-10 | ls − fbgd} and {annealing-fig2-small | Fashion-MNIST | ls − fbgd}",
    ),
    Line(
        "Ours", "the rate that helps P is bounded by that which loses Q", "reproduced", "a narrow window, with six data sets a point",
        "`lnsgd-ls`, P-only (Q-only), runs that ended: η₁ = 0.1 {annealing-regimes-small | η₁ = 0.1 | lnsgd-ls: P-only}; 0.24 "
        "{annealing-regimes-small | η₁ = 0.24 | lnsgd-ls: P-only}; 0.4 {annealing-regimes-small | η₁ = 0.4 | lnsgd-ls: P-only}",
    ),
    Line(
        "Ours", "fresh label noise around `elr` helps on labels that are wrong already", "reproduced", "in all of eight settings",
        "digits, 60 %: {annealing-stacks-small | digits, elr | symmetric:0.6}, with flips "
        "{annealing-stacks-small | digits, label_noise(elr) | symmetric:0.6}",
    ),
)  # fmt: skip
