"""The coach: reads a style's newest actionable feedback and suggests what the agent should be told.

    reading.read() -> Reading          what it is given
    rules.advise(), asking             who writes: rules, or a model against a JSON Schema
    runs.start(), runs.run()           the run as a row, with lease and attempts
    decisions.accept(), revoke()       what a person makes of single items

What it suggests is data. Nothing is applied until a person accepts it, and the contracts of tools are never changed.
"""
