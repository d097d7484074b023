"""What Liu et al. (2022) claim, and what became of it here: lines of the ledger."""

from __future__ import annotations

from noiseproof_papers.ledger import Line

TITLE = 'SOP: Liu, Zhu, Qu and You, "Robust Training under Label Noise by Over-parameterization", ICML 2022'

LINES = (
    Line(
        "Abstract", "state-of-the-art test accuracy against label noise", "not shown at this size",
        "networks that end at 20 to 47 % rank no states of the art; `sop` is first with symmetric noise, not with asymmetric",
        "`sop` − `ce` at 40 %: {sop-table1-small | sop minus ce | symmetric:0.4}; asymmetric: "
        "{sop-table2-small | sop minus ce | asymmetric:0.4}",
    ),
    Line(
        "Abstract", "exact separation of sparse noise and low-rank data under incoherence", "reproduced",
        "in the linear model: see Proposition 3.5",
        "trials with an exact recovery, r = k = 20: {sop-fig3-paper | 20, 20 | trials with a threshold}",
    ),
    Line(
        "Theorem 3.1", "for k²r < N/(4μ) gradient descent on (16) finds (θ*, s*)", "reproduced",
        "as Propositions 3.3 and 3.5 together; with γ = e⁻⁸ up to 10⁻⁶ at 4λ₀, not just above λ₀",
        "θ / s off the truth, λ = 4λ₀: {sop-gamma-paper | 4 | γ = e^−8: θ / s}; 1.1λ₀: "
        "{sop-gamma-paper | 1.1 | γ = e^−8: θ / s}",
    ),
    Line(
        "Proposition 3.2", "every critical point of (15) is a global minimum or a strict saddle", "reproduced",
        "critical points were built for random data; each has a Hessian eigenvalue below −2 max|r|",
        command="pytest tests/papers/test_linear.py",
    ),
    Line(
        "Proposition 3.3", "for γ → 0 the flow ends at the solution of (26) with λ = −log γ / (2α)", "reproduced",
        "the gap closes like 1/|log γ| below λ₀ and like a power of γ above; its assumption that limits exist is not needed",
        "θ / s apart, λ = 0.1λ₀: {sop-gamma-paper | 0.1 | γ = e^−8: θ / s} at γ = e⁻⁸, "
        "{sop-gamma-paper | 0.1 | γ = e^−1024: θ / s} at e⁻¹⁰²⁴",
    ),
    Line(
        "Proposition 3.5", "if k²r < N/(4μ), (26) recovers (θ*, s*) for every λ above some λ₀", "reproduced",
        "no certified trial failed; the condition certifies little of what is recovered, and (B.25) gives twice the λ₀ needed",
        "certified trials of 20 with k = 1, r = 5: {sop-fig4-paper | 5 | certified, k = 1}; failed: "
        "{sop-fig4-paper | 5 | certified but failed}",
    ),
    Line(
        "Theorem B.6", "‖x − z‖₁ ≤ (1 + ρ)/(1 − ρ) (‖z‖₁ − ‖x‖₁) under the null space property", "reproduced",
        "used in the proof; its last line has the fraction upside down, the statement is right",
        command="pytest tests/papers/test_linear.py",
    ),
    Line(
        "Figure 1", "`ce` fits the noise and loses test accuracy, SOP does not", "shape only",
        "on CIFAR-10 at 16 × 16 pixels and on Fashion-MNIST",
        "test at 40 %, CIFAR-10: `ce` {sop-fig1-small | CIFAR-10, symmetric 0.4 | ce: test, last (best)}, `sop` "
        "{sop-fig1-small | CIFAR-10, symmetric 0.4 | sop: test, last (best)}",
    ),
    Line(
        "Figure 2", "descent at α solves (26) at λ = −log γ / (2α)", "reproduced",
        "above λ₀ all λ give one solution: a plateau where the picture has a valley",
        "relative difference of θ at λ = 0.1: {sop-fig2-paper | 0.1000 | difference in θ}; at 0.001: "
        "{sop-fig2-paper | 0.0010 | difference in θ}",
    ),
    Line(
        "Figure 3", "exact recovery from a threshold λ₀ on, which grows with k and r", "reproduced", "",
        "median λ₀ for r = 20, k = 10: {sop-fig3-paper | 20, 10 | λ₀, median}; k = 40: "
        "{sop-fig3-paper | 20, 40 | λ₀, median}; r = 40, k = 20: {sop-fig3-paper | 40, 20 | λ₀, median}",
    ),
    Line(
        "Figure 4", "recovery needs both few wrong labels and a low rank", "reproduced", "",
        "the largest k ≤ 5 that is always recovered at r = 15: {sop-fig4-paper | 15 | largest k ≤ 5 always recovered}",
    ),
    Line(
        "Table 1", "with symmetric noise SOP is best up to 60 %, ELR at 80 %", "shape only",
        "`sop` is first in all four columns here, also at 80 %, where the paper has ELR ahead",
        "`sop` − `elr`: {sop-table1-small | sop minus elr | symmetric:0.2}, "
        "{sop-table1-small | sop minus elr | symmetric:0.4}, {sop-table1-small | sop minus elr | symmetric:0.6}, "
        "{sop-table1-small | sop minus elr | symmetric:0.8}",
    ),
    Line(
        "Table 2", "SOP+ above DivideMix and ELR+, with symmetric and asymmetric noise", "not shown at this size",
        "ELR+ and DivideMix are not implemented; in 20 epochs SOP+ is not above SOP",
        "`sop_plus` − `sop`: {sop-table2-small | sop_plus minus sop | symmetric:0.2}, "
        "{sop-table2-small | sop_plus minus sop | symmetric:0.5}, {sop-table2-small | sop_plus minus sop | symmetric:0.8}; "
        "asymmetric {sop-table2-small | sop_plus minus sop | asymmetric:0.4}",
    ),
    Line("Table 3", "73.5 % on Clothing1M, 76.6 % on mini-WebVision", "not attempted", "needs the photographs and a GPU; the recipes `sop-clothing1m` and `sop-webvision` have not been run"),
    Line(
        "Table 4", "SOP+ above all others on CIFAR-N", "not shown at this size",
        "`sop` is above `ce`, as far as 3 runs tell, and SOP+ not above `sop`; CIFAR-100N and the other columns were not run",
        "aggregate: `sop` − `ce` {sop-cifar10n-small | aggre, sop minus aggre, ce | test, last}; random 1: "
        "{sop-cifar10n-small | random1, sop minus random1, ce | test, last}; `sop_plus` − `sop` "
        "{sop-cifar10n-small | random1, sop_plus minus random1, sop | test, last}",
    ),
    Line(
        "Table 5", "SOP takes 1.1 times as long as cross-entropy, SOP+ 2.3 times, the fastest of all", "shape only",
        "on two shared cores, whose noise is as large as what SOP costs",
        "time over that of `ce`: `sop` {sop-table5-small | sop | relative to ce}, `sop_plus` "
        "{sop-table5-small | sop_plus | relative to ce}, `co_teaching` {sop-table5-small | co_teaching | relative to ce}",
    ),
    Line("Table A.1", "hyper-parameters", "reproduced", "the recipes `sop-*`, with what differs in their comments", command="noiseproof recipes"),
    Line(
        "Ours", "automatic rates are as good as the best fixed ones on digits, over five kinds of noise", "reproduced", "in one small setting",
        "at 60 %: automatic {sop-variants-small | authors, automatic rates (default) | symmetric:0.6}, 10 and 100 "
        "{sop-variants-small | authors, 10 and 100 | symmetric:0.6}, 10 and 10 {sop-variants-small | authors, 10 and 10 | symmetric:0.6}",
    ),
    Line(
        "Ours", "8 to 15 visits until a contradicted label is explained away come out alike, more are worse", "reproduced", "in one small setting",
        "100 epochs: {sop-visits-small | 8 visits | 100 epochs}; {sop-visits-small | 15 visits | 100 epochs}; 40 visits "
        "{sop-visits-small | 40 visits | 100 epochs}",
    ),
)  # fmt: skip
