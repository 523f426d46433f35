"""What the demo's reviewers go by: two versions, with their age in days."""

FIRST = """# How we label

Label what the agent did **with what it knew then**, not with what we know now.

- **Good reply**: right tool, right arguments, right moment. A tool that was down does not make the call a bad one.
- **Wrong tool**: another tool, or none, was called for. Name it.
- **Missing tool**: a call was needed and not made.
- **Bad arguments**: right tool, wrong arguments. Correct them.
- **Other**: say it in the note.
"""

SECOND = (
    FIRST
    + """
## Closer cases

1. The same call again, while its result is there already: *other*.
2. A call that is only described in words: *missing tool*, at the place where it should have been made.
3. An order number that the person did not give: *bad arguments*, even if the order exists.
4. Amounts: `100 EUR` is a text, `100` is an amount.

> In doubt, skip (`s`) and talk about it at noon.
"""
)

GUIDELINES = ((40, FIRST), (12, SECOND))
