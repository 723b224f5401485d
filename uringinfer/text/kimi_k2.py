"""The chat format of Kimi K2 and Kimi-Linear, for files that come without their template.

`<|im_user|>user<|im_middle|>...<|im_end|>`, the role's name between two markers; calls in a section of their
own, results as turns of the system that name the call.
"""

NAME = "the built-in format for Kimi K2 and Kimi-Linear"
MARKERS = ("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>")

TEMPLATE = """
{%- macro text_of(content) -%}
    {%- if content is string -%}{{- content -}}
    {%- elif content is iterable and content is not mapping -%}
        {%- for part in content -%}
            {%- if part.type != 'text' -%}{{- raise_exception('a content part is no text') -}}{%- endif -%}
            {{- part.text -}}
        {%- endfor -%}
    {%- endif -%}
{%- endmacro -%}
{%- if tools -%}
    {{- '<|im_system|>tool_declare<|im_middle|>' + (tools | tojson(separators=(',', ':'))) + '<|im_end|>' -}}
{%- endif -%}
{%- if messages and messages[0].role != 'system' -%}
    {{- '<|im_system|>system<|im_middle|>You are Kimi, an AI assistant created by Moonshot AI.<|im_end|>' -}}
{%- endif -%}
{%- for message in messages -%}
    {%- set kind = message.role if message.role in ('user', 'assistant') else 'system' -%}
    {{- '<|im_' + kind + '|>' + (message.name or message.role) + '<|im_middle|>' -}}
    {%- if message.role == 'tool' -%}{{- '## Return of ' + message.tool_call_id + '\\n' -}}{%- endif -%}
    {{- text_of(message.content) -}}
    {%- if message.tool_calls -%}
        {{- '<|tool_calls_section_begin|>' -}}
        {%- for call in message.tool_calls -%}
            {%- set arguments = call.function.arguments -%}
            {{- '<|tool_call_begin|>' + call.id + '<|tool_call_argument_begin|>' -}}
            {{- (arguments if arguments is string else arguments | tojson) + '<|tool_call_end|>' -}}
        {%- endfor -%}
        {{- '<|tool_calls_section_end|>' -}}
    {%- endif -%}
    {{- '<|im_end|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_assistant|>assistant<|im_middle|>' -}}{%- endif -%}
"""
