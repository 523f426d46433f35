"""The table of formats. To add one: a module with a reader beside these, and a row here.

Formats with the same opening are asked in the order of the table.
"""

from engine.parsing.format import Format
from engine.parsing.formats import (
    deepseek,
    dsml,
    gemma,
    glm,
    harmony,
    invoke,
    json_block,
    kimi_k2,
    kimi_k3,
    llama,
    mistral,
    plain_json,
    pythonic,
    qwen_agent,
    qwen_xml,
    turns,
)
from engine.parsing.formats.json_block import reader as json_until

FORMATS = (
    Format("hermes", ("<tool_call>", "<seed:tool_call>"), json_until(*qwen_xml.CLOSES), qwen_xml.CLOSES),
    Format("qwen_xml", qwen_xml.OPENS, qwen_xml.read, qwen_xml.CLOSES),
    Format("qwen_xml, no wrapper", (qwen_xml.FUNCTION,), qwen_xml.read_bare, ("</function>",), soft=True),
    Format("glm", ("<tool_call>",), glm.read, ("</tool_call>",)),
    Format("llama", llama.OPENS, llama.read),
    Format("pythonic", pythonic.OPENS, pythonic.read_marked, pythonic.CLOSES),
    Format("mistral", mistral.OPENS, mistral.read, mistral.CLOSES),
    Format("deepseek", (deepseek.OPEN,), deepseek.read, (deepseek.CLOSE,)),
    Format("deepseek, no section", (deepseek.CALL,), deepseek.read_single, (deepseek.CALL_END,)),
    Format("dsml", dsml.OPENS, dsml.read),
    Format("dsml, end tag", dsml.CLOSES, dsml.read_end),
    Format("kimi_k2", kimi_k2.OPENS, kimi_k2.read, kimi_k2.CLOSES),
    Format("kimi_k2, no section", (kimi_k2.CALL,), kimi_k2.read_single, (kimi_k2.CALL_END,)),
    Format("kimi_k3", kimi_k3.OPENS, kimi_k3.read),
    Format("harmony", harmony.OPENS, harmony.read),
    Format("harmony, no special tokens", harmony.RECIPIENTS, harmony.read_recipient, soft=True),
    Format("invoke", invoke.OPENS, invoke.read, invoke.CLOSES),
    Format("invoke, no wrapper", (invoke.INVOKE,), invoke.read_bare, ("</invoke>",), soft=True),
    Format("granite", ("<|tool_call|>",), json_until("<|/tool_call|>", "<tool_call|>"), ("<|/tool_call|>",)),
    Format("granite, older", ("<function_call>",), json_until("</function_call>"), ("</function_call>",)),
    Format("gemma", gemma.OPENS, gemma.read, gemma.CLOSES),
    Format("phi", ("functools[",), json_block.read_functools, soft=True),
    Format("command_r", ("<|START_ACTION|>",), json_until("<|END_ACTION|>"), ("<|END_ACTION|>",)),
    Format("internlm", ("<|action_start|>",), json_block.read_plugin, ("<|action_end|>",)),
    Format("minimax_m1", ("<tool_calls>",), json_until("</tool_calls>"), ("</tool_calls>",)),
    Format("nemotron", ("<TOOLCALL>",), json_until("</TOOLCALL>"), ("</TOOLCALL>",)),
    Format("qwen_agent", (qwen_agent.FUNCTION,), qwen_agent.read),
    Format("qwen_agent, stray", qwen_agent.STRAYS, qwen_agent.read_stray),
    Format("turn header", turns.OPENS, turns.read),
    Format("plain_json", ("{", "["), plain_json.read, soft=True, plain=True),
    Format("pythonic, no markers", ("[",), pythonic.read_whole, soft=True, plain=True),
    Format("plain_json, fenced", ("```", "~~~"), plain_json.read_fenced, soft=True, plain=True),
)
