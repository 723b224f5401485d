"""Chat templates that write what ten published families' templates write, in this project's own words.

Each does with earlier turns what the published one does: a default system text, reasoning that is dropped or
kept, turns that are ended or not. What is left out are wordings of tool declarations.
"""

_DROPS_REASONING = """
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}{% endfor %}
{%- macro said(m, before, after) %}
    {%- set reasoning = m.reasoning_content if m.reasoning_content is string else '' %}
    {%- set content = m.content %}
    {%- if not reasoning and '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].split('<think>')[-1].strip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
    {%- endif %}
    {{- before + reasoning.strip('\\n') + after if reasoning else '' }}{{ content.lstrip('\\n') }}
{%- endmacro %}
"""

SMOLLM2 = """
{%- for m in messages %}
    {%- if loop.first and m.role != 'system' %}
        {{- '<|im_start|>system\\nYou are a helpful AI assistant.<|im_end|>\\n' }}
    {%- endif %}
    {{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN25 = """
{%- if messages[0].role != 'system' %}{{ '<|im_start|>system\\nYou are Qwen.<|im_end|>\\n' }}{% endif %}
{%- for m in messages %}
    {%- if m.role == 'tool' %}
        {%- if loop.first or messages[loop.index0 - 1].role != 'tool' %}{{- '<|im_start|>user' }}{% endif %}
        {{- '\\n<tool_response>\\n' + m.content + '\\n</tool_response>' }}
        {%- if loop.last or messages[loop.index0 + 1].role != 'tool' %}{{- '<|im_end|>\\n' }}{% endif %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\\n' + (m.content or '') }}
        {%- for call in m.tool_calls or [] %}
            {{- '\\n<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""

QWEN3 = (
    _DROPS_REASONING
    + """
{%- for m in messages %}
    {{- '<|im_start|>' + m.role + '\\n' }}
    {%- if m.role != 'assistant' %}{{ m.content }}
    {%- elif loop.index0 > ns.last %}{{ said(m, '<think>\\n', '\\n</think>\\n\\n') }}
    {%- else %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}
    {%- endif %}
    {{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}"""
)

LLAMA3 = """
{{- bos_token }}
{{- '<|start_header_id|>system<|end_header_id|>\\n\\nToday: ' + (date_string or '1 Dec 2026') + '\\n\\n' }}
{%- if messages[0].role == 'system' %}{{ messages[0].content | trim }}{% endif %}
{{- '<|eot_id|>' }}
{%- for m in messages if m.role != 'system' %}
    {{- '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"""

MISTRAL = """
{{- bos_token }}
{%- set system = messages[0].content + '\\n\\n' if messages[0].role == 'system' else '' %}
{%- for m in messages if m.role != 'system' %}
    {%- if (m.role == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('after a system message, user and assistant take turns') }}
    {%- endif %}
    {%- if m.role == 'user' %}{{ '[INST] ' + (system if loop.last else '') + m.content + '[/INST]' }}
    {%- else %}{{ ' ' + m.content | trim + eos_token }}
    {%- endif %}
{%- endfor %}"""

GPT_OSS = """
{{- '<|start|>system<|message|>Reasoning: ' + (reasoning_effort or 'medium') + '<|end|>' }}
{%- for m in messages %}
    {%- if m.role in ('system', 'developer') %}
        {{- '<|start|>developer<|message|># Instructions\\n\\n' + m.content + '<|end|>' }}
    {%- elif m.role == 'assistant' %}
        {%- if loop.last and m.thinking %}
            {{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
        {%- endif %}
        {{- '<|start|>assistant<|channel|>final<|message|>' + m.content }}
        {{- '<|return|>' if loop.last and not add_generation_prompt else '<|end|>' }}
    {%- else %}
        {{- '<|start|>' + m.role + '<|message|>' + m.content + '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}"""

GLM45 = (
    "[gMASK]<sop>"
    + _DROPS_REASONING
    + """
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {{- '<|assistant|>\\n' }}
        {%- if loop.index0 > ns.last %}{{ said(m, '<think>', '</think>\\n') }}
        {%- else %}{{ '<think></think>\\n' + m.content.split('</think>')[-1].strip() }}
        {%- endif %}
    {%- else %}{{ '<|' + m.role + '|>\\n' + m.content }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|assistant|>' + ('\\n<think></think>' if enable_thinking is false else '') }}
{%- endif %}"""
)

DEEPSEEK_V3 = """
{%- set ns = namespace(system='') %}
{%- for m in messages if m.role == 'system' %}
    {%- set ns.system = ns.system + ('\\n\\n' if ns.system else '') + m.content %}
{%- endfor %}
{{- bos_token + ns.system }}
{%- for m in messages %}
    {%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}
    {%- elif m.role == 'assistant' %}
        {{- '<｜Assistant｜>' + m.content.split('</think>')[-1] }}
        {%- for call in m.tool_calls or [] %}
            {{- '<｜tool▁call▁begin｜>function<｜tool▁sep｜>' + call.function.name + '\\n```json\\n' }}
            {{- call.function.arguments + '\\n```<｜tool▁call▁end｜>' }}
        {%- endfor %}
        {{- '<｜end▁of▁sentence｜>' }}
    {%- elif m.role == 'tool' %}
        {{- '<｜tool▁output▁begin｜>' + m.content + '<｜tool▁output▁end｜>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %}"""

KIMI_K2 = """
{%- if tools %}{{ '<|im_system|>tool_declare<|im_middle|>' + (tools | tojson) + '<|im_end|>' }}{% endif %}
{%- if messages[0].role != 'system' %}
    {{- '<|im_system|>system<|im_middle|>You are Kimi.<|im_end|>' }}
{%- endif %}
{%- for m in messages %}
    {%- set kind = m.role if m.role in ('user', 'assistant') else 'system' %}
    {{- '<|im_' + kind + '|>' + m.role + '<|im_middle|>' }}
    {%- if m.content is string %}{{ m.content }}
    {%- else %}{% for part in m.content %}{{ part.text }}{% endfor %}
    {%- endif %}
    {{- '<|im_end|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}"""

FORMATS = {
    "SmolLM2": SMOLLM2,
    "Qwen2.5": QWEN25,
    "Qwen3": QWEN3,
    "Llama 3": LLAMA3,
    "Mistral": MISTRAL,
    "gpt-oss": GPT_OSS,
    "GLM-4.5": GLM45,
    "DeepSeek V3": DEEPSEEK_V3,
    "Kimi K2": KIMI_K2,
}
"""By family. Kimi K3's format is a program of the package's own, for tokenizers that have its markers."""

SPECIAL = (
    *("<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|user|>", "<|assistant|>", "<|system|>"),
    *("<|end|>", "<|start|>", "<|channel|>", "<|message|>", "<|return|>", "<|call|>", "[INST]", "[/INST]"),
    *("[gMASK]", "<sop>", "<|observation|>", "<｜User｜>", "<｜Assistant｜>", "<｜end▁of▁sentence｜>"),
    *("<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>", "<｜tool▁output▁begin｜>"),
    *("<｜tool▁output▁end｜>", "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"),
    *("<|im_system|>", "<|im_user|>", "<|im_assistant|>", "<|im_middle|>", "<|tool_calls_section_begin|>"),
    *("<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>"),
    *("<|tool_call_end|>", "[TOOL_CALLS]", "[ARGS]", "<|open|>", "<|close|>", "<|sep|>", "<|end_of_msg|>"),
)
VISIBLE = ("<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")


def add_markers(document: dict, names: tuple[str, ...] = SPECIAL + VISIBLE) -> dict:
    """The tokenizer.json `document` with the markers of all these formats."""
    known = {entry["content"] for entry in document["added_tokens"]}
    numbers = [*document["model"]["vocab"].values(), *(entry["id"] for entry in document["added_tokens"])]
    missing = [name for name in names if name not in known]
    for number, name in enumerate(missing, start=1 + max(numbers)):
        flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
        document["added_tokens"].append({"id": number, "content": name, **flags, "special": name in SPECIAL})
    return document
