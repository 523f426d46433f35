"""What the demo tenant holds.

`real` replays recorded exchanges of small open models; `generator` invents a month of three agents' work out of `tasks`
(what is asked, and the right calls), `faults` (what goes wrong) and `agents` (tools and prompts). Both make `Scene`s,
which `records` turns into what every importer makes. All of that is pure; `seed` alone writes, through the same store
and the same labelling as everybody else.
"""
