"""Review queues: named sets of items to label, by whom, in which order, and how far that is.

| module | what it does |
| --- | --- |
| `making` | makes, changes, pauses, closes and deletes a queue |
| `people` | who may label in a queue |
| `adding` | brings items in, one by one, by a frozen filter, or behind the request; takes them out |
| `filling` | brings in what passes a queue's rule, as calls arrive |
| `ordering`, `usefulness`, `refreshing` | what is served first, and why |
| `claiming` | gives an entry to one reviewer at a time: claim, skip, send back, hand over, reopen |
| `labelled` | what a label means to the entries of its item: the one call that labelling makes |
| `adjudication` | disagreements of a queue, and the answers side by side |
| `progress`, `listing` | how far a queue is, as a whole and by reviewer; its entries page by page |
| `source` | a queue as the review screen goes through it |

An item has one entry in a queue, ever. The database counts the distinct reviewers of an entry by its assignments. All
functions need an open tenant scope, unless they say that they open one.
"""
