"""Workloads of the comparison with OPA: policies, questions and right answers. All are seeded."""
