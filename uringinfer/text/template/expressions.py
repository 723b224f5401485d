"""Gives the values of a template's expressions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from jinja2 import nodes

from uringinfer.text.template.filters import FILTERS, pick
from uringinfer.text.template.meter import Meter, TemplateError
from uringinfer.text.template.methods import attribute, cut, item
from uringinfer.text.template.operations import (
    add,
    arithmetic,
    compare,
    concatenate,
    modulo,
    multiply,
    power,
)
from uringinfer.text.template.predicates import test
from uringinfer.text.template.values import (
    Function,
    Loop,
    Stream,
    Undefined,
    items_of,
    key_of,
    kind_of,
    need_defined,
)

_OPERATORS: dict[type[nodes.Node], Callable[[Any, Any, Meter], Any]] = {
    nodes.Add: add,
    nodes.Mul: multiply,
    nodes.Pow: power,
    nodes.Mod: modulo,
    nodes.Sub: lambda left, right, _: arithmetic("-", left, right),
    nodes.Div: lambda left, right, _: arithmetic("/", left, right),
    nodes.FloorDiv: lambda left, right, _: arithmetic("//", left, right),
}


class Scope:
    """Names and their values; what is not here is looked for in the scope around it."""

    __slots__ = ("names", "outer")

    def __init__(self, names: dict[str, Any], outer: Scope | None = None) -> None:
        self.names = names
        self.outer = outer

    def find(self, name: str) -> Any:
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return Undefined(f"'{name}' is undefined")


class Expressions(ABC):
    """Evaluates expressions against scopes, and pays for their values."""

    def __init__(self, meter: Meter) -> None:
        self.meter = meter
        self._expressions: dict[type[nodes.Node], Callable[[Any, Scope], Any]] = {
            nodes.Const: lambda node, scope: node.value,
            nodes.TemplateData: lambda node, scope: node.data,
            nodes.Name: lambda node, scope: scope.find(node.name),
            nodes.NSRef: self._namespace_attribute,
            nodes.Tuple: lambda node, scope: tuple(self._list(node, scope)),
            nodes.List: self._list,
            nodes.Dict: self._object,
            nodes.CondExpr: self._conditional,
            nodes.Filter: self._filter,
            nodes.Test: self._test,
            nodes.Call: self.call,
            nodes.Getattr: self._attribute,
            nodes.Getitem: self._item,
            nodes.Concat: self._concat,
            nodes.Compare: self._compare,
            nodes.And: lambda node, scope: (
                self.evaluate(node.left, scope) and self.evaluate(node.right, scope)
            ),
            nodes.Or: lambda node, scope: self.evaluate(node.left, scope) or self.evaluate(node.right, scope),
            nodes.Not: lambda node, scope: not self.evaluate(node.node, scope),
            nodes.Neg: lambda node, scope: -need_defined(self.evaluate(node.node, scope)),
            nodes.Pos: lambda node, scope: +need_defined(self.evaluate(node.node, scope)),
            **dict.fromkeys(_OPERATORS, self._binary),
        }

    def evaluate(self, node: nodes.Node, scope: Scope) -> Any:
        """The value of an expression."""
        self.meter.step()
        expression = self._expressions.get(type(node))
        if expression is None:
            raise TemplateError(f"'{type(node).__name__.lower()}' is not for chat templates")
        return expression(node, scope)

    def call(self, node: nodes.Call, scope: Scope, **more: Any) -> Any:
        """The result of a call, with arguments beside those written in it."""
        callee = self.evaluate(node.node, scope)
        args, kwargs = self._arguments(node, scope)
        if isinstance(callee, Loop):
            return self.loop_again(callee, args)
        if not isinstance(callee, Function):
            raise TemplateError(f"{kind_of(callee)} cannot be called")
        return callee.run(*args, **kwargs, **more)

    @abstractmethod
    def loop_again(self, loop: Loop, args: Sequence[Any]) -> str:
        """The text of a recursive loop over its argument: statements are for who runs them."""

    def apply_filter(self, node: nodes.Filter, scope: Scope, value: Any) -> Any:
        """`value` through the filter `node`, and through those that it stands behind."""
        if node.node is not None:
            inner = node.node
            value = (
                self.apply_filter(inner, scope, value)
                if isinstance(inner, nodes.Filter)
                else self.evaluate(inner, scope)
            )
        args, kwargs = self._arguments(node, scope)
        return self._filtered(node.name, value, args, kwargs)

    def _filter(self, node: nodes.Filter, scope: Scope) -> Any:
        value = self.evaluate(node.node, scope) if node.node is not None else ""
        args, kwargs = self._arguments(node, scope)
        return self._filtered(node.name, value, args, kwargs)

    def _filtered(self, name: str, value: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        if name == "map":
            return self._map(value, args, kwargs)
        if name in ("select", "reject", "selectattr", "rejectattr"):
            return self._selected(name, value, args)
        run = FILTERS.get(name)
        if run is None:
            raise TemplateError(f"there is no filter named '{name}'")
        return run(self.meter, value, *args, **kwargs)

    def _map(self, value: Any, args: list[Any], kwargs: dict[str, Any]) -> Stream:
        items = items_of(value, self.meter)
        if not args:
            path, default = kwargs.get("attribute"), kwargs.get("default")
            found = [pick(entry, path, self.meter) for entry in items]
            if default is not None:
                found = [default if isinstance(entry, Undefined) else entry for entry in found]
            return Stream(found)
        name, *rest = args
        mapped = []
        for entry in items:
            self.meter.step()
            mapped.append(self._filtered(str(name), entry, rest, kwargs))
        return Stream(mapped)

    def _selected(self, name: str, value: Any, args: list[Any]) -> Stream:
        wanted = name.startswith("select")
        path = None
        if name.endswith("attr"):
            path, *args = args
        chosen = []
        for entry in items_of(value, self.meter):
            self.meter.step()
            looked_at = entry if path is None else pick(entry, path, self.meter)
            holds = test(str(args[0]), looked_at, args[1:], self.meter) if args else bool(looked_at)
            if holds == wanted:
                chosen.append(entry)
        return Stream(chosen)

    def _arguments(self, node: Any, scope: Scope) -> tuple[list[Any], dict[str, Any]]:
        args = [self.evaluate(arg, scope) for arg in node.args]
        kwargs = {pair.key: self.evaluate(pair.value, scope) for pair in node.kwargs}
        if node.dyn_args is not None:
            args += items_of(self.evaluate(node.dyn_args, scope), self.meter)
        if node.dyn_kwargs is not None:
            more = self.evaluate(node.dyn_kwargs, scope)
            if not isinstance(more, dict) or not all(isinstance(key, str) for key in more):
                raise TemplateError("'**' needs an object")
            kwargs |= more
        return args, kwargs

    def _test(self, node: nodes.Test, scope: Scope) -> bool:
        value = self.evaluate(node.node, scope)
        args, _ = self._arguments(node, scope)
        return test(node.name, value, args, self.meter)

    def _attribute(self, node: nodes.Getattr, scope: Scope) -> Any:
        return attribute(self.evaluate(node.node, scope), node.attr, self.meter)

    def _namespace_attribute(self, node: nodes.NSRef, scope: Scope) -> Any:
        return attribute(scope.find(node.name), node.attr, self.meter)

    def _item(self, node: nodes.Getitem, scope: Scope) -> Any:
        value = self.evaluate(node.node, scope)
        if isinstance(node.arg, nodes.Slice):
            bounds = (node.arg.start, node.arg.stop, node.arg.step)
            start, stop, step = (None if bound is None else self.evaluate(bound, scope) for bound in bounds)
            return cut(value, start, stop, step, self.meter)
        return item(value, self.evaluate(node.arg, scope), self.meter)

    def _conditional(self, node: nodes.CondExpr, scope: Scope) -> Any:
        if self.evaluate(node.test, scope):
            return self.evaluate(node.expr1, scope)
        if node.expr2 is None:
            return Undefined("the condition is false, and there is no else")
        return self.evaluate(node.expr2, scope)

    def _concat(self, node: nodes.Concat, scope: Scope) -> str:
        return concatenate([self.evaluate(part, scope) for part in node.nodes], self.meter)

    def _binary(self, node: nodes.BinExpr, scope: Scope) -> Any:
        left, right = self.evaluate(node.left, scope), self.evaluate(node.right, scope)
        return _OPERATORS[type(node)](left, right, self.meter)

    def _compare(self, node: nodes.Compare, scope: Scope) -> bool:
        left = self.evaluate(node.expr, scope)
        for operand in node.ops:
            right = self.evaluate(operand.expr, scope)
            if not compare(operand.op, left, right, self.meter):
                return False
            left = right
        return True

    def _list(self, node: nodes.List | nodes.Tuple, scope: Scope) -> list[Any]:
        self.meter.pay_items(len(node.items) + 1)
        return [self.evaluate(entry, scope) for entry in node.items]

    def _object(self, node: nodes.Dict, scope: Scope) -> dict[Any, Any]:
        self.meter.pay_items(4 * len(node.items) + 1)
        pairs = ((self.evaluate(p.key, scope), self.evaluate(p.value, scope)) for p in node.items)
        return {key_of(key, self.meter): value for key, value in pairs}
