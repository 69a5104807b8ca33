"""Processes that measure: compile and time side by side, survive crashes, keep a journal.

It knows no framework: what compiling and timing mean is up to the stages that it is given.
"""
