"""Walks a parsed template: statements, scopes, macros and loops. `expressions` has what gives values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from jinja2 import nodes

from uringinfer.text.template.expressions import Expressions, Scope
from uringinfer.text.template.globals import make_globals
from uringinfer.text.template.meter import LimitError, Meter, TemplateError
from uringinfer.text.template.parsing import parse
from uringinfer.text.template.values import Function, Loop, Namespace, Undefined, items_of, kind_of, text_of

MAX_DEPTH = 60
"""Of macros and loops inside each other."""


class Template:
    """One parsed template."""

    def __init__(self, source: str) -> None:
        """Raises jinja2.TemplateSyntaxError if `source` is none, LimitError if it is absurd."""
        self._body = parse(source)

    def render(
        self, given: Mapping[str, Any], meter: Meter, now: Callable[[], datetime] = datetime.now
    ) -> str:
        """The text that the template makes of `given`, whose values must be such as JSON has.

        Raises TemplateError, and LimitError once `meter` is used up. `now` is the clock of `strftime_now`.
        """
        try:
            return _Run(meter, Scope({**make_globals(meter, now), **given})).text_of_body(self._body)
        except RecursionError:
            raise LimitError("it nests too deep") from None
        except (_Break, _Continue):
            raise TemplateError("'break' or 'continue' outside of a loop") from None
        except (TypeError, ValueError, ArithmeticError, AttributeError) as error:
            raise TemplateError(str(error) or type(error).__name__) from error


class _Break(Exception):
    pass


class _Continue(Exception):
    pass


class _Run(Expressions):
    """One rendering."""

    def __init__(self, meter: Meter, root: Scope) -> None:
        super().__init__(meter)
        self._root = root
        self._written: list[str] = []
        self._depth = 0
        self._statements: dict[type[nodes.Node], Callable[[Any, Scope], None]] = {
            nodes.Output: self._output,
            nodes.If: self._if,
            nodes.For: self._for,
            nodes.Assign: self._assign_value,
            nodes.AssignBlock: self._assign_block,
            nodes.Macro: self._define_macro,
            nodes.CallBlock: self._call_block,
            nodes.FilterBlock: self._filter_block,
            nodes.With: self._with,
            nodes.Scope: self._scope,
            nodes.ScopedEvalContextModifier: self._scope,
            nodes.Block: self._scope,
            nodes.Break: self._break,
            nodes.Continue: self._continue,
        }

    def text_of_body(self, body: Sequence[nodes.Node]) -> str:
        return self._captured(body, self._root)

    def _execute(self, body: Sequence[nodes.Node], scope: Scope) -> None:
        for node in body:
            self.meter.step()
            statement = self._statements.get(type(node))
            if statement is None:
                raise TemplateError(f"'{type(node).__name__.lower()}' is not for chat templates")
            statement(node, scope)

    def _captured(self, body: Sequence[nodes.Node], scope: Scope) -> str:
        """What `body` writes."""
        outer, self._written = self._written, []
        try:
            self._execute(body, scope)
            return self._joined()
        finally:
            self._written = outer

    def _joined(self) -> str:
        self.meter.pay_text(sum(map(len, self._written)), *self._written)
        return "".join(self._written)

    @contextmanager
    def _deeper(self) -> Iterator[None]:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise LimitError(f"macros or loops nest deeper than {MAX_DEPTH}")
        try:
            yield
        finally:
            self._depth -= 1

    def _output(self, node: nodes.Output, scope: Scope) -> None:
        for child in node.nodes:
            if isinstance(child, nodes.TemplateData):
                text = child.data
            else:
                text = text_of(self.evaluate(child, scope), self.meter)
            self.meter.pay(8)
            self._written.append(text)

    def _if(self, node: nodes.If, scope: Scope) -> None:
        for branch in (node, *node.elif_):
            if self.evaluate(branch.test, scope):
                self._execute(branch.body, scope)
                return
        self._execute(node.else_, scope)

    def _for(self, node: nodes.For, scope: Scope) -> None:
        self._loop(node, scope, self.evaluate(node.iter, scope), depth=1)

    def _loop(self, node: nodes.For, scope: Scope, iterable: Any, depth: int) -> None:
        items = items_of(iterable, self.meter)
        if node.test is not None:
            items = [item for item in items if self._passes(node, scope, item)]

        def again(inner: Any) -> str:
            outer, self._written = self._written, []
            try:
                self._loop(node, scope, inner, depth + 1)
                return self._joined()
            finally:
                self._written = outer

        loop = Loop(items, depth, again if node.recursive else None)
        with self._deeper():
            for index, item in enumerate(items):
                self.meter.step()
                loop.index0 = index
                inside = Scope({"loop": loop}, scope)
                self._assign(node.target, item, inside)
                try:
                    self._execute(node.body, inside)
                except _Continue:
                    continue
                except _Break:
                    break
        if not items:
            self._execute(node.else_, Scope({}, scope))

    def _passes(self, node: nodes.For, scope: Scope, item: Any) -> bool:
        self.meter.step()
        inside = Scope({}, scope)
        self._assign(node.target, item, inside)
        return bool(self.evaluate(node.test, inside)) if node.test is not None else True

    def _break(self, node: nodes.Node, scope: Scope) -> None:
        raise _Break

    def _continue(self, node: nodes.Node, scope: Scope) -> None:
        raise _Continue

    def _assign_value(self, node: nodes.Assign, scope: Scope) -> None:
        self._assign(node.target, self.evaluate(node.node, scope), scope)

    def _assign_block(self, node: nodes.AssignBlock, scope: Scope) -> None:
        text: Any = self._captured(node.body, Scope({}, scope))
        if node.filter is not None:
            text = self.apply_filter(node.filter, scope, text)
        self._assign(node.target, text, scope)

    def _assign(self, target: nodes.Node, value: Any, scope: Scope) -> None:
        if isinstance(target, nodes.Name):
            scope.names[target.name] = value
        elif isinstance(target, nodes.NSRef):
            namespace = scope.find(target.name)
            if not isinstance(namespace, Namespace):
                raise TemplateError(f"'{target.name}' is no namespace")
            if target.attr.startswith("_"):
                raise TemplateError(f"a namespace cannot hold '{target.attr}'")
            self.meter.pay_items(2)
            namespace.attributes[target.attr] = value
        elif isinstance(target, nodes.Tuple):
            values = items_of(value, self.meter)
            if len(values) != len(target.items):
                raise TemplateError(f"{len(values)} values for {len(target.items)} names")
            for part, entry in zip(target.items, values, strict=True):
                self._assign(part, entry, scope)
        else:
            raise TemplateError(f"{type(target).__name__.lower()} cannot be set")

    def _define_macro(self, node: nodes.Macro, scope: Scope) -> None:
        scope.names[node.name] = self._macro(node, node.name, scope)

    def _macro(self, node: nodes.Macro | nodes.CallBlock, name: str, defined_in: Scope) -> Function:
        names = [argument.name for argument in node.args]
        first_default = len(names) - len(node.defaults)

        def run(*args: Any, caller: Any = None, **kwargs: Any) -> str:
            inside = Scope({}, defined_in)
            unknown = kwargs.keys() - set(names)
            if len(args) > len(names) or unknown:
                inside.names["varargs"] = args[len(names) :]
                inside.names["kwargs"] = {key: kwargs[key] for key in unknown}
            inside.names["caller"] = Undefined("no caller defined") if caller is None else caller
            for place, argument in enumerate(names):
                if place < len(args):
                    value = args[place]
                elif argument in kwargs:
                    value = kwargs[argument]
                elif place >= first_default:
                    value = self.evaluate(node.defaults[place - first_default], inside)
                else:
                    value = Undefined(f"parameter '{argument}' was not provided")
                inside.names[argument] = value
            with self._deeper():
                return self._captured(node.body, inside)

        return Function(name, run)

    def _call_block(self, node: nodes.CallBlock, scope: Scope) -> None:
        caller = self._macro(node, "caller", scope)
        self._written.append(text_of(self.call(node.call, scope, caller=caller), self.meter))

    def _filter_block(self, node: nodes.FilterBlock, scope: Scope) -> None:
        text = self._captured(node.body, Scope({}, scope))
        self._written.append(text_of(self.apply_filter(node.filter, scope, text), self.meter))

    def _with(self, node: nodes.With, scope: Scope) -> None:
        inside = Scope({}, scope)
        values = [self.evaluate(value, scope) for value in node.values]
        for target, value in zip(node.targets, values, strict=True):
            self._assign(target, value, inside)
        self._execute(node.body, inside)

    def _scope(self, node: Any, scope: Scope) -> None:
        self._execute(node.body, Scope({}, scope))

    def loop_again(self, loop: Loop, args: Sequence[Any]) -> str:
        if loop.again is None or len(args) != 1:
            raise TemplateError(f"{kind_of(loop)} is called, but is not recursive")
        return loop.again(args[0])
