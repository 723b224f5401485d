"""The interpreter of templates, against Jinja itself, and against templates that mean harm."""

import contextlib
import importlib.util
import json
import random
import time
import tracemalloc
from datetime import datetime
from pathlib import Path

import jinja2
import pytest

from tests.text import chat_templates, jinja_oracle
from uringinfer.text.template import LimitError, Meter, Template, TemplateError

MESSAGES = [
    {"role": "system", "content": " Be brief.\n"},
    {"role": "user", "content": "  Wie groß ist 東京?\n\n\tSag es! "},
    {"role": "assistant", "content": "<think>hm</think>\n\nVery.", "tool_calls": None},
    {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image"}]},
]
GIVEN = {
    "messages": MESSAGES,
    "tools": [{"name": "f", "parameters": {"z": [1, 2.5, None, True], "a": {"é": "<&>"}}, "n": 3}],
    "bos_token": "<s>",
    "items": {"b": 2, "A": 1, "c": "x"},
}


def now():
    return datetime(2026, 12, 1, 8, 30)


def run(source, **limits):
    return Template(source).render(GIVEN, Meter(16 << 20, **limits), now)


def jinja(source):
    return jinja_oracle.make_environment(now).from_string(source).render(json.loads(json.dumps(GIVEN)))


SNIPPETS = (Path(__file__).parent / "template_snippets.txt").read_text(encoding="utf-8").split("\n---\n")[:-1]


@pytest.mark.parametrize("source", SNIPPETS)
def test_templates_give_what_jinja_gives(source):
    assert run(source) == jinja(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ missing.x }}",
        "{{ missing + 1 }}",
        "{{ 'a' + 1 }}",
        "{{ missing() }}",
        "{{ 1 < 'a' }}",
        "{{ tools | nofilter }}",
        "{{ 1 is notest }}",
        "{{ missing | tojson }}",
        "{{ {[1]: 2} }}",
        "{% for a, b in [1] %}{% endfor %}",
        "{{ 1 // 0 }}",
        "{{ raise_exception('no') }}",
        "{% set messages.x = 1 %}",
    ],
)
def test_what_jinja_refuses_is_refused(source):
    with pytest.raises(Exception):  # noqa: B017 - Jinja raises many kinds
        jinja(source)
    with pytest.raises(TemplateError):
        run(source)


REACHING = {
    "class": "{{ ''.__class__.__mro__ }}",
    "class by item": "{{ messages['__class__'] }}{{ ''['__class__'] }}",
    "class by filter": "{{ messages | attr('__class__') }}",
    "class by map": "{{ [''] | map(attribute='__class__') | list }}",
    "globals of a function": "{{ namespace.__init__.__globals__ }}",
    "lipsum": "{{ lipsum.__globals__['os'].popen('id').read() }}",
    "a frame": "{{ (messages | map('upper')).gi_frame.f_globals }}",
    "self": "{{ self.__init__.__globals__ }}",
    "a format": "{{ '{0.__class__}'.format(1) }}",
    "a format's item": "{{ '{0[a]}'.format({'a': 1}) }}",
    "a namespace's class": "{% set n = namespace() %}{% set n.__class__ = 1 %}",
    "changing a list": "{{ messages.append(1) }}",
    "changing an object": "{{ messages[0].update({'content': ''}) }}",
    "a file": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}",
    "a parent": "{% extends 'x' %}",
}


@pytest.mark.parametrize("name", REACHING)
def test_a_template_cannot_reach_python_or_files(name):
    with pytest.raises(TemplateError):
        run(REACHING[name])


DOUBLING = "{%% set ns = namespace(x=%s) %%}{%% for i in range(64) %%}{%% set ns.x = %s %%}{%% endfor %%}%s"
GREEDY = {
    "a long text": "{{ 'a' * 10**10 }}",
    "a long list": "{{ ([0] * 10**9 * 4) | length }}",
    "a text that doubles": DOUBLING % ("'aaaa'", "ns.x ~ ns.x", ""),
    "a list that doubles, written": DOUBLING % ("[1]", "[ns.x, ns.x]", "{{ ns.x }}"),
    "a list that doubles, as JSON": DOUBLING % ("[1]", "[ns.x, ns.x]", "{{ ns.x | tojson }}"),
    "a list that doubles, compared": DOUBLING % ("[1]", "[ns.x, ns.x]", "{{ ns.x == ns.x }}"),
    "a key that doubles": DOUBLING % ("(1,)", "(ns.x, ns.x)", "{{ {ns.x: 1} }}"),
    "many texts kept": DOUBLING % ("[]", "ns.x + ['a' * 1000000]", ""),
    "replaced by long ones": "{{ ('a' * 10**6).replace('a', 'a' * 10**6) }}",
    "joined by long ones": "{{ ('a' * 10**6) | join('a' * 10**6) }}",
    "split to pieces": "{{ ('a b ' * 10**6).split(' ') }}",
    "a text as a list": "{{ ('é' * 3 * 10**6) | list }}",
    "a wide number": "{{ '%0999999999d' % 1 }}",
    "a wide field": "{{ '{:>999999999}'.format(1) }}",
    "a width from outside": "{{ '%*d' % (10**9, 1) }}",
    "a wide margin": "{{ 'a'.center(10**9) }}",
    "a deep margin": "{{ ('a\n' * 10**5) | indent(10**5) }}",
    "a margin of text": "{{ 'a' | indent('b' * 10**8) }}",
    "wide JSON": "{{ messages | tojson(indent=10**9) }}",
    "a wide date": "{{ strftime_now('%999999999d') }}",
    "many slices": "{{ [1] | slice(10**9) | list | length }}",
    "a filled batch": "{{ [1] | batch(10**9, 0) | list }}",
    "a large number": "{{ 10**1000000 }}",
    "a growing number": DOUBLING % ("3", "ns.x * ns.x", ""),
    "a long number": "{{ " + "9" * 100_000 + " }}",
    "a long range": "{{ range(10**9) }}",
    "loops in loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "cheap loops": "{% for i in range(99999) %}{% for j in 'aaaaaaaaaaa' %}{% endfor %}{% endfor %}",
    "a macro in itself": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "macros without end": "{% macro f() %}{% for i in 'ab' %}{{ f() }}{% endfor %}{% endmacro %}{{ f() }}",
    "a loop in itself": "{% for i in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "nested brackets": "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
    "nested blocks": "{% if 1 %}" * 3000 + "{% endif %}" * 3000,
    "a chain of sums": "{{ " + "+".join("1" * 4_000) + " }}",
    "a chain of filters": "{{ 1" + "|abs" * 4_000 + " }}",
    "a chain of names": "{{ a" + ".b" * 4_000 + " }}",
    "a deep list": (DOUBLING % ("1", "[ns.x]", "{{ ns.x }}")).replace("64", "5000"),
    "a long source": "a" * 300_000,
}


@pytest.mark.parametrize("name", GREEDY)
def test_a_template_takes_neither_time_nor_memory_beyond_its_limits(name):
    tracemalloc.start()
    began = time.thread_time()
    try:
        with pytest.raises(LimitError) as caught:
            run(GREEDY[name], seconds=0.2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.thread_time() - began < 5  # tracing makes allocations several times slower
    assert peak < 40 << 20
    assert "\n" not in str(caught.value)


def test_a_template_that_gives_up_says_so_in_few_words():
    with pytest.raises(TemplateError) as caught:
        run("{{ raise_exception('x' * 100000) }}")
    assert len(str(caught.value)) == 500


NOISE = ["{{", "}}", "{%", "%}", "[", "]", "(", ")", "*", "10**9", "|list", "|tojson", "|join", "messages"]
NOISE += [
    "'a'",
    ".items()",
    '|map("upper")',
    "~",
    "not ",
    "{#",
    "%s",
    "\n",
    "-1",
    "none",
    ",",
    " in ",
    "|sort",
]


def test_a_damaged_template_is_refused_or_runs():
    random.seed(0)
    sources = [*chat_templates.ALL.values(), *GREEDY.values(), *SNIPPETS]
    for _ in range(400):
        source = random.choice([entry for entry in sources if len(entry) < 5000])
        for _ in range(random.randint(1, 4)):
            start = random.randrange(len(source) + 1)
            source = source[:start] + random.choice(NOISE) + source[start + random.choice([0, 1, 8]) :]
        with contextlib.suppress(TemplateError, jinja2.TemplateSyntaxError):
            run(source, seconds=0.1)


@pytest.mark.slow
def test_published_templates_give_what_jinja_gives():
    spec = importlib.util.find_spec("trl")
    if spec is None:
        pytest.skip("needs the templates in the package trl (pip install --no-deps trl)")
    call = {"id": "abcdefghi", "function": {"name": "f", "arguments": {"city": "Zürich", "n": [1, None]}}}
    said = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nb", "reasoning_content": "deep"}
    asked = {"role": "user", "content": " a "}
    called = {"role": "assistant", "content": "", "tool_calls": [call]}
    result = {"role": "tool", "content": "1", "tool_call_id": "abcdefghi", "name": "f"}
    system = {"role": "system", "content": "s"}
    parts = {"role": "user", "content": [{"type": "text", "text": "p"}]}
    conversations = [[asked], [system, asked, said, asked, said], [asked, called, result, asked], [parts]]
    tool = {"name": "f", "description": 'd"é', "parameters": {"type": "object", "properties": {}}}
    compared = 0
    for path in sorted((Path(spec.submodule_search_locations[0]) / "chat_templates").glob("*.jinja")):
        source = path.read_text(encoding="utf-8")
        template, oracle = Template(source), jinja_oracle.make_environment(now).from_string(source)
        for messages in conversations:
            for tools in (None, [{"type": "function", "function": tool}]):
                given = {
                    "messages": messages,
                    "tools": tools,
                    "add_generation_prompt": True,
                    "bos_token": "<s>",
                }
                try:
                    expected = oracle.render(json.loads(json.dumps(given)))
                except Exception:  # what a template refuses
                    continue
                assert template.render(given, Meter(32 << 20), now) == expected, path.name
                compared += 1
    assert compared > 100
