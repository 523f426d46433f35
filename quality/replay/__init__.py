"""Replays in the product: cases put to a tenant's models again, in the background, and what came of it.

`plan` freezes what is asked, `run` asks it slice by slice, `steps` pauses, resumes, cancels and retries, `outcome` says
what the samples mean. Nothing here opens a connection but that to model servers: no tool is ever called.
"""
