"""Reasoning blocks: what stands in one is neither shown nor searched for calls."""

BLOCKS = {
    "<think>": "</think>",
    "<seed:think>": "</seed:think>",
    "[THINK]": "[/THINK]",  # Magistral
    "<|START_THINKING|>": "<|END_THINKING|>",  # Command R
    "<|channel>thought": "<channel|>",  # Gemma 4
    "<|open|>think<|sep|>": "<|close|>think<|sep|>",  # Kimi K3
}

# A block that the prompt opened may also be left without its end tag, for the answer.
ANSWERS = ("<|open|>response<|sep|>",)
