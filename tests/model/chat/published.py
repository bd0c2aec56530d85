"""Forty chat templates with the constructs of published ones: most are rendered, the last ones refused with a reason.

All were written for these tests; a name says whose template has the same constructs.
"""

from __future__ import annotations

_ALTERNATES = (
    "{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate user/assistant') }}{% endif %}"
)
_SYSTEM_FIRST = (
    "{% if messages[0].role == 'system' %}{% set first = messages[0].content %}{% set rest = messages[1:] %}"
    "{% else %}{% set first = '' %}{% set rest = messages %}{% endif %}"
)
_CHATML = "{% for m in messages %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>\n' }}{% endfor %}"
_CHATML_TURN = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
_NO_THOUGHTS = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"

RENDERED: dict[str, str] = {
    "chatml": _CHATML + _CHATML_TURN,
    "llama-2": _SYSTEM_FIRST + "{% for m in rest %}" + _ALTERNATES + "{% if loop.first and first %}"
    "{% set text = '<<SYS>>\n' + first + '\n<</SYS>>\n\n' + m.content %}{% else %}{% set text = m.content %}{% endif %}"
    "{% if m.role == 'user' %}{{ bos_token ~ '[INST] ' ~ text | trim ~ ' [/INST]' }}"
    "{% else %}{{ ' ' ~ text | trim ~ ' ' ~ eos_token }}{% endif %}{% endfor %}",
    "llama-3.1": "{%- if not date_string is defined %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "{{- bos_token }}Today Date: {{ date_string }}\n" + _CHATML + _CHATML_TURN,
    "llama-3.2": "{%- if date_string is not defined %}{%- if strftime_now is defined %}"
    "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
    "{%- endif %}Today Date: {{ date_string }}\n" + _CHATML + _CHATML_TURN,
    "mistral-v3": _SYSTEM_FIRST + "{%- set ns = namespace(index=0) %}{%- for m in rest %}"
    "{%- if not (m.tool_calls is defined and m.tool_calls is not none) %}"
    "{%- if (m['role'] == 'user') != (ns.index % 2 == 0) %}{{ raise_exception('roles must alternate') }}{%- endif %}"
    "{%- set ns.index = ns.index + 1 %}{%- endif %}{%- endfor %}{{- bos_token }}{%- for m in rest %}"
    "{%- if m.role == 'user' %}[INST] {{ first + '\n\n' if loop.last and first }}{{ m.content }}[/INST]"
    "{%- else %} {{ m.content | trim }}{{ eos_token }}{%- endif %}{%- endfor %}",
    "magistral": "{%- set today = strftime_now('%Y-%m-%d') %}{%- for m in messages %}{%- if m.role == 'system' %}"
    "[SYSTEM_PROMPT]{{ m.content }} {{ today }}[/SYSTEM_PROMPT]{%- elif m.role == 'user' %}[INST]{{ m.content }}[/INST]"
    "{%- else %}{{ m.content.split('[/THINK]')[-1] }}{{ eos_token }}{%- endif %}{%- endfor %}",
    "qwen2.5": "{%- if messages[0].role != 'system' %}<|im_start|>system\nYou help.<|im_end|>\n{%- endif %}"
    "{%- if tools %}{%- for tool in tools %}{{- '\n' }}{{- tool | tojson }}{%- endfor %}{%- endif %}"
    + _CHATML
    + _CHATML_TURN,
    "qwen3": "{%- set ns = namespace(last=messages | length - 1, seeking=true) %}{%- for m in messages[::-1] %}"
    "{%- set index = (messages | length - 1) - loop.index0 %}"
    "{%- if ns.seeking and m.role == 'user' and m.content is string %}{%- set ns.seeking = false %}"
    "{%- set ns.last = index %}{%- endif %}{%- endfor %}{%- for m in messages %}"
    "{{- '<|im_start|>' + m.role + '\n' }}{%- if m.reasoning_content is string and loop.index0 > ns.last %}"
    "{{- '<think>\n' + m.reasoning_content.strip('\n') + '\n</think>\n\n' }}{%- endif %}"
    "{{- m.content.lstrip('\n') + '<|im_end|>\n' }}{%- endfor %}" + _CHATML_TURN + _NO_THOUGHTS,
    "qwen3-thinking": _CHATML + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}",
    "smollm3": "{%- set mode = '/think' if enable_thinking is not defined or enable_thinking else '/no_think' %}"
    "Today: {{ strftime_now('%d %B %Y') }}\nMode: {{ mode }}\n{%- for m in messages %}{%- if m.role == 'assistant' %}"
    "{% generation %}{{ '<|im_start|>assistant\n' + m.content + '<|im_end|>\n' }}{% endgeneration %}{%- else %}"
    "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{%- endif %}{%- endfor %}" + _CHATML_TURN,
    "deepseek-r1": "{% set ns = namespace(system='') %}{% for m in messages %}{% if m.role == 'system' %}"
    "{% set ns.system = ns.system + m.content %}{% endif %}{% endfor %}{{ bos_token }}{{ ns.system }}"
    "{% for m in messages %}{% if m.role == 'user' %}{{ '<User>' + m.content }}{% elif m.role == 'assistant' %}"
    "{% set text = m.content %}{% if '</think>' in text %}{% set text = text.split('</think>')[-1] %}{% endif %}"
    "{{ '<Assistant>' + text + eos_token }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<Assistant><think>\n{% endif %}",
    "deepseek-v3.1": "{% if not thinking is defined %}{% set thinking = false %}{% endif %}" + _CHATML + "{% if "
    "add_generation_prompt %}<Assistant>{% if not thinking %}</think>{% else %}<think>{% endif %}{% endif %}",
    "gemma-3": _SYSTEM_FIRST + "{{ bos_token }}{%- for m in rest -%}" + _ALTERNATES + "{%- set role = 'model' if "
    "m.role == 'assistant' else m.role -%}{{ '<start_of_turn>' + role + '\n' + (first + '\n\n' if loop.first and first "
    "else '') }}{%- if m.content is string -%}{{ m.content | trim }}{%- elif m.content is iterable -%}{%- for item in "
    "m.content -%}{{ item.text | trim }}{%- endfor -%}{%- else -%}{{ raise_exception('Invalid content type') }}"
    "{%- endif -%}{{ '<end_of_turn>\n' }}{%- endfor -%}{%- if add_generation_prompt -%}{{ '<start_of_turn>model\n' }}"
    "{%- endif -%}",
    "gemma-4": "{%- macro shown(value) -%}{%- if value is mapping -%}{%- for key, part in value | dictsort -%}"
    "{{ key }}:{{ part }}{%- if not loop.last %},{% endif -%}{%- endfor -%}{%- else -%}{{ value }}{%- endif -%}"
    "{%- endmacro -%}{%- for m in messages -%}<|turn>{{ m.role }}\n{{ shown(m.content) }}<turn|>\n{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|turn>model\n{%- if not enable_thinking | default(false) -%}<|channel>thought\n"
    "<channel|>{%- endif -%}{%- endif -%}",
    "phi-3": "{% for m in messages %}{% if m['role'] == 'system' and m['content'] %}{{ '<|system|>\n' + m['content'] + "
    "'<|end|>\n' }}{% elif m['role'] == 'user' %}{{ '<|user|>\n' + m['content'] + '<|end|>\n' }}{% else %}"
    "{{ '<|assistant|>\n' + m['content'] + '<|end|>\n' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\n' }}{% else %}{{ eos_token }}{% endif %}",
    "phi-4-mini": "{% for m in messages %}{% if m.role == 'system' and 'tools' in m and m.tools is not none %}"
    "{{ '<|' + m.role + '|>' + m.content + '<|tool|>' + m.tools + '<|/tool|>' }}{% else %}"
    "{{ '<|' ~ m.role ~ '|>' ~ m.content ~ '<|end|>' }}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}",
    "gpt-oss": "{%- macro kind(spec) -%}{%- if spec.type == 'array' -%}{{ kind(spec['items']) }}[]{%- else -%}any"
    "{%- endif -%}{%- endmacro -%}{%- if reasoning_effort is not defined %}{%- set reasoning_effort = 'medium' %}"
    "{%- endif %}<|start|>system<|message|>Date: {{ strftime_now('%Y-%m-%d') }}\nReasoning: {{ reasoning_effort }}\n"
    "{{ kind({'type': 'array', 'items': {}}) }}<|end|>{%- for m in messages -%}{{- '<|start|>' + m.role }}"
    "{{- '<|channel|>final' if m.role == 'assistant' }}<|message|>{{- m.content }}<|end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|start|>assistant{%- endif -%}",
    "command-r": "{{ bos_token }}{% set ns = namespace(turns=[]) %}{% macro block(name) %}<|START_{{ name | upper }}|>"
    "{{ caller() }}<|END_{{ name | upper }}|>{% endmacro %}{% for m in messages %}{% call block(m.role) %}"
    "{{ m.content }}{% endcall %}{% endfor %}{% if add_generation_prompt %}<|START_ASSISTANT|>{% endif %}",
    "granite-3.3": _SYSTEM_FIRST + "{%- if not first %}{%- set first = 'Knowledge Cutoff: April 2024.\nToday is ' + "
    "strftime_now('%B %d, %Y') + '.' %}{%- endif %}{{- '<|start_of_role|>system<|end_of_role|>' + first }}"
    "{%- if documents %}{%- for document in documents %}{{- document.text }}{%- endfor %}{%- endif %}"
    "{%- for m in rest %}{{- '<|start_of_role|>' + m.role + '<|end_of_role|>' + m.content }}{%- if not loop.last %}"
    "{{- '\n' }}{%- endif %}{%- endfor %}{%- if add_generation_prompt %}<|start_of_role|>assistant{%- if thinking %}"
    ' {"thinking": true}{%- endif %}<|end_of_role|>{%- endif %}',
    "granite-4": "{%- set about = {'roles': messages | map(attribute='role') | unique | list} %}"
    "{{ about | tojson(indent=4) }}\n" + _CHATML + _CHATML_TURN,
    "olmo-3": "{%- set has_system = messages | selectattr('role', 'equalto', 'system') | list | length > 0 -%}"
    "{%- if not has_system -%}<|im_start|>system\nYou help.<|im_end|>\n{%- endif -%}" + _CHATML + _CHATML_TURN,
    "falcon-3": "{% for m in messages if m.content %}<|{{ m.role }}|>\n{{ m.content }}\n{{ '' if loop.last else '' }}"
    "{% if loop.last and add_generation_prompt %}<|assistant|>\n{% endif %}{% endfor %}",
    "zephyr": "{% for m in messages %}\n{% if m['role'] == 'user' %}\n{{ '<|user|>\n' + m['content'] + eos_token }}\n"
    "{% elif m['role'] == 'system' %}\n{{ '<|system|>\n' + m['content'] + eos_token }}\n{% else %}\n"
    "{{ '<|assistant|>\n' + m['content'] + eos_token }}\n{% endif %}\n{% if loop.last and add_generation_prompt %}\n"
    "{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "vicuna": _SYSTEM_FIRST
    + "{{ first ~ ' ' if first }}{% for m in rest %}{{ 'USER: ' if loop.cycle(true, false) else "
    "'ASSISTANT: ' }}{{ m.content.strip() }}{{ ' ' if loop.index0 is even else eos_token }}{% endfor %}"
    "{% if add_generation_prompt %}ASSISTANT:{% endif %}",
    "alpaca": "{% for m in messages %}{% filter trim %}### {{ m.role | capitalize }}:\n{{ m.content }}{% endfilter %}"
    "\n\n{% endfor %}{% if add_generation_prompt %}### Assistant:\n{% endif %}",
    "glm-4.5": "[gMASK]<sop>{%- macro visible(content) -%}{%- if content is string -%}{{- content }}"
    "{%- elif content is iterable and content is not mapping -%}{%- for item in content -%}"
    "{{- item if item is string else item.text }}{%- endfor -%}{%- endif -%}{%- endmacro -%}{%- for m in messages %}"
    "<|{{ m.role }}|>\n{{ visible(m.content) }}{{- '/nothink' if m.role == 'user' and loop.last and "
    "enable_thinking is defined and not enable_thinking }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{{- '\n<think></think>' if (enable_thinking is defined and not "
    "enable_thinking) else '' }}{%- endif -%}",
    "nemotron": "{%- set ns = namespace(on=true) -%}{%- for m in messages -%}{%- if '/no_think' in m.content -%}"
    "{%- set ns.on = false -%}{%- break -%}{%- endif -%}{%- endfor -%}{%- for m in messages -%}<SPECIAL_11>"
    "{{ m.role }}\n{{ m.content }}\n{%- endfor -%}{%- if add_generation_prompt -%}<SPECIAL_11>assistant\n<think>"
    "{{- '\n' if ns.on else '</think>' }}{%- endif -%}",
    "kimi-k2": "{%- for m in messages -%}{%- if loop.first and m.role != 'system' -%}<|im_system|>You help.<|im_end|>"
    "{%- endif -%}{%- if m.role == 'system' -%}<|im_system|>{{ m.name or 'system' }}<|im_middle|>{{ m.content }}"
    "<|im_end|>{%- continue -%}{%- endif -%}<|im_{{ m.role }}|>{{ m.content }}<|im_end|>{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|im_assistant|>assistant<|im_middle|>{%- endif -%}",
    "minimax-m2": "{%- set sep = joiner('\n') -%}{%- for m in messages -%}{{ sep() }}]~b]{{ m.role }}\n{{ m.content }}"
    "[e~[{%- endfor -%}{%- if add_generation_prompt %}\n]~b]ai\n<think>\n{% endif -%}",
    "lfm2": "{{- bos_token -}}{%- set past = keep_past_thinking | default(false) -%}{%- for m in messages -%}"
    "{%- set text = m.content -%}{%- if text is not string -%}{%- set text = text | tojson -%}{%- endif -%}"
    "{%- if m.role == 'assistant' and not past and '</think>' in text -%}{%- set text = text.split('</think>')[-1] | "
    "trim -%}{%- endif -%}<|im_start|>{{ m.role }}\n{{ text }}<|im_end|>\n{%- endfor -%}" + _CHATML_TURN,
    "exaone-4": "{%- set marks = {'system': '[|system|]', 'user': '[|user|]', 'assistant': '[|assistant|]'} -%}"
    "{%- for m in messages -%}{{ marks[m.role] }}\n{{ m.content }}{{ '[|endofturn|]\n' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{ marks.assistant }}\n{%- if not enable_thinking | default(true) %}<think>\n\n"
    "</think>\n\n{% endif -%}{%- endif -%}",
    "seed-oss": "{%- set budget = thinking_budget if thinking_budget is defined else -1 -%}{%- for m in messages -%}"
    "{{ bos_token }}{{ m.role }}\n{{ m.content }}{{ eos_token }}{%- endfor -%}{%- if add_generation_prompt -%}"
    "{{ bos_token }}assistant\n{%- if budget == 0 %}<seed:think>\n</seed:think>{% endif -%}{%- endif -%}",
    "hermes": "{%- set call -%}<tool_call>{{ {'name': 'é', 'b': [1, 2]} | tojson(ensure_ascii=true, sort_keys=true) }}"
    "</tool_call>{%- endset -%}" + _CHATML + "{{ call }}" + _CHATML_TURN,
    "internlm": "{{ {'a': {'b': 1}} | tojson(separators=(',', ':')) }}{% raw %}{{ not a value }}{% endraw %}"
    "{# a note #}" + _CHATML + _CHATML_TURN,
}

# Name -> a template that is refused, and words of the refusal.
REFUSED: dict[str, tuple[str, str]] = {
    "gemma": (
        "{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + _CHATML,
        "System role not supported",
    ),
    "including": ("{% include 'turns.jinja' %}" + _CHATML, "include"),
    "importing": ("{% from 'macros.jinja' import turn %}" + _CHATML, "from"),
    "extending": ("{% extends 'base.jinja' %}" + _CHATML, "extends"),
    "changing a list": ("{% set x = [] %}{{ x.append(1) }}" + _CHATML, "append"),
    "a filter of another library": (_CHATML + "{{ messages | from_json }}", "from_json"),
    "a tag of another library": ("{% do messages.pop() %}" + _CHATML, "do"),
}
