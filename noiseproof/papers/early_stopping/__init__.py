"""Li, Soltanolkotabi and Oymak, "Gradient Descent with Early Stopping is Provably Robust …", AISTATS 2020."""
