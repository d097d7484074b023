"""Zhou, Xiong, Yuan and Hoi, "A Theory-Driven Self-Labeling Refinement Method …", NeurIPS 2021."""
