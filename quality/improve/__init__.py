"""From labels to fixes.

faults        kinds of faults: what groups feedback that asks for the same fix
guidelines    what reviewers go by, in versions
"""
