"""What the warnings on turns and calls say, in words for people."""

MEANINGS = {
    "args_double_encoded": "The arguments came as a JSON string of JSON text; they were read once more.",
    "args_empty": "The arguments were blank text; they are kept as {}.",
    "args_missing": "No arguments were recorded.",
    "args_not_json": "The arguments are no JSON; they are kept as the text they were.",
    "args_not_object": "The arguments are JSON, but no object.",
    "args_python_repr": "The arguments are a Python value written as text, not JSON.",
    "clock_skew": "A time lies before what it follows; the clocks of two machines may differ.",
    "denied": "A person refused the call.",
    "error_text_suspected": "The result reads like an error, but nothing says that it is one.",
    "incomplete": "The call was cut off while the model wrote it.",
    "name_suffix_removed": "The tool's name had a number that the tracing added; it was taken away.",
    "no_call_id": "The call has no id, or none that its result names; they were joined by their order.",
    "no_result": "No result was recorded.",
    "preliminary_result": "The result was still growing when it was recorded.",
    "provider_executed": "The model's provider ran the call, not your agent.",
    "result_python_repr": "The result is a Python value written as text, not JSON.",
    "unfinished": "The call had begun and not ended when it was recorded.",
    "unknown_field": "The record has fields that no one reads.",
    "unmatched_result": "A result came that answers no call.",
}


def meaning(code: str) -> str:
    """A sentence; for a word that the sender chose, that it is one."""
    return MEANINGS.get(code, "The sender noted this.")
