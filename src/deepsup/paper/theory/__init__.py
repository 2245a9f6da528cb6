"""A preset in, the paper's lemmas and theorem, simulated, out: what holds, what does not, and what holds instead.

Room of the section "Stochastic Gradient Descent View". P is the output's objective, Q the companions', F = P + Q.
"""

from deepsup.paper.theory.findings import study

__all__ = ["study"]
