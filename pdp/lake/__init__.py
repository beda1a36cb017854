"""Data pipeline on Spark: the audit as tables of a lake.

Needs the extra `pdp[spark]`. Only the commands `pdp pipeline` import this package, when they run.
"""
