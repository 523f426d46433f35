"""Bulk actions: one act on many calls, looked at before it happens, and undone as a whole.

`scope` says which calls an action is for, `preview` what would happen to them, `steps` does it to a batch of them and
takes it back, `run` keeps the action as a row: confirmed, claimed by one worker, gone on with, stopped, undone.
"""
