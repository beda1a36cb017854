"""Value types of questions, answers, events and references, and the strict readers below everything.

Knows no engine, no file and no surface; imports nothing of the product but `pdp.errors`. All modules are faces.
"""
