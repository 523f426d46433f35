"""Judging regression cases: plain Python that knows no framework, no database and nothing of the service.

values        JSON with exact numbers: reading, equality, pointers
expectation   the expectation of a case, as frozen values
schema        the expectation language: its JSON Schema, `check` and `parse`
matchers      what one argument has to be
replies       what the final reply has to say
sample        one attempt at a case, and what the judge makes of it
toolset       the tools of a case: names, schemas, whether a call is valid
pairing       which call stands for which step
judge         `judge(expectation, sample)`: the verdict with its reasons
judge_model   a model that judges meaning: what it is asked, how its votes count
explain       a reason as a sentence
propose       an expectation from a reviewer's label and correction
canonical     one spelling for calls that mean the same
statistics    what counts of passes allow to say
record        exported cases, line by line
"""
