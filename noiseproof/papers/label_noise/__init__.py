"""Wei, Ren and Du, "On the Synergy Between Label Noise and Learning Rate Annealing …", OPT 2023."""
