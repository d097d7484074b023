"""What predictions of all examples, and all of their labels, tell of each label.

With q_i (K,) what the networks of a run say of example i, and y_i its label, a method believes of it

    b_ik ∝ q_ik √(C_ky / E_ky),   y = y_i,   C_kj = Σ_{i: y_i = j} q_ik,   E_kj = Σ_i q_ik q_ij

and suspects its label by 1 − b_iy. C / E is how much oftener the label j comes with the class k than if labels were
drawn from q. Where they might have been, it is 1, and b = q. Where wrong labels prefer a class, as with pairs, it tells
a label that is often put on k from one that is not: Bayes' rule, but that what the network confuses by itself is not
held against the labels. The root: mistakes of the network that it is sure of count as wrong labels in C, too.
"""

from __future__ import annotations

import torch
from torch import Tensor

from noiseproof.method import Beliefs


def judged(said: Tensor, label: Tensor) -> Beliefs:
    """What is believed by q (n, K), rows sum to 1, of labels (n,), see above."""
    expected = said.T @ said  # (K, K) E, symmetric
    found = torch.zeros_like(expected).index_add_(0, label, said)  # (K, K) C, a row for each label
    joint = said * (found / expected.clamp_min(1e-12)).sqrt()[label]  # (n, K)
    soft_label = joint / joint.sum(dim=1, keepdim=True)
    others = soft_label.scatter(1, label[:, None], 0.0).sum(dim=1)  # (n,) 1 − b_y, with all its digits
    return Beliefs(soft_label, others.clamp(0, 1))
