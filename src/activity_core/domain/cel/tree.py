"""The tree of a CEL expression, read from what the CEL library serialises.

`Expression.serialize()` gives a google.protobuf.Any of `cel.expr.ParsedExpr`, a message of the CEL specification
(cel/expr/syntax.proto). It is the only view of the parsed form that the library offers; the few fields that matter are
read here by their numbers.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["const", "bytes", "ident", "select", "call", "list", "map", "comprehension"]
Path = tuple[str, ...]
"""A root name and the constant keys after it: `event.data["a b"]` is ("event", "data", "a b")."""

OPTIONAL_STEPS = frozenset({"_?._", "_[?_]"})
INDEX = frozenset({"_[_]"})

_EXPR_KINDS: dict[int, Kind] = {4: "ident", 5: "select", 6: "call", 7: "list", 8: "map", 9: "comprehension"}
_Fields = list[tuple[int, int | bytes]]


@dataclass(slots=True)
class Node:
    kind: Kind
    position: int = 0  # in characters: of the operator, the name or the opening parenthesis
    name: str = ""  # of an identifier, field, function or message
    is_test: bool = False  # made by has()
    has_target: bool = False  # a call written `a.f(b)`
    constant: str | None = None  # of a string literal
    children: list["Node"] = field(default_factory=list)  # of `a.f(b)`: a, b

    def calls(self, names: frozenset[str]) -> bool:
        """Whether this is a call of one of these; operators are named like `_+_`."""
        return self.kind == "call" and self.name in names

    def is_optional(self) -> bool:
        """Whether the value is one of CEL's optionals, which a plain step after `.?` stays."""
        if self.calls(OPTIONAL_STEPS):
            return True
        is_step = (self.kind == "select" and not self.is_test) or self.calls(INDEX)
        return is_step and self.children[0].is_optional()

    def path(self) -> tuple[Path, int] | None:
        """The constant path that this node is, and the number of its steps that must be there."""
        if self.kind == "ident":
            return (self.name,), 1
        key = self.name if self.kind == "select" else None
        if self.calls(INDEX | OPTIONAL_STEPS):
            key = self.children[1].constant
        before = self.children[0].path() if key is not None else None
        if key is None or before is None:
            return None
        keys, needed = before
        is_needed = needed == len(keys) and not self.is_test and not self.calls(OPTIONAL_STEPS)
        return (*keys, key), needed + is_needed


def parse_tree(serialized: bytes) -> Node:
    """The tree of a serialised ParsedExpr. Its depth, and so the recursion here, is bounded: the parser takes 32."""
    parsed = dict(_fields(_part(dict(_fields(serialized)), 2)))
    positions = {}
    for number, value in _fields(_part(parsed, 3)):
        if number == 4 and isinstance(value, bytes):
            entry = dict(_fields(value))
            positions[entry.get(1, 0)] = entry.get(2, 0)
    return _expr(_part(parsed, 2), positions)


def _expr(data: bytes, positions: dict[int | bytes, int | bytes]) -> Node:
    fields = _fields(data)
    position = next((positions.get(value, 0) for number, value in fields if number == 2), 0)
    at = position if isinstance(position, int) else 0
    for number, value in fields:
        if not isinstance(value, bytes):
            continue
        if number == 3:
            return _constant(value, at)
        if number in _EXPR_KINDS:
            node = Node(_EXPR_KINDS[number], at)
            _fill(node, _fields(value), positions)
            return node
    raise ValueError("the CEL library serialised an expression of an unknown kind")


def _constant(data: bytes, position: int) -> Node:
    for number, value in _fields(data):
        if number == 6 and isinstance(value, bytes):
            return Node("const", position, constant=value.decode())
        if number == 7:
            return Node("bytes", position)
    return Node("const", position)


def _fill(node: Node, fields: _Fields, positions: dict[int | bytes, int | bytes]) -> None:
    """Field numbers: Ident name 1; Select operand 1, field 2, test_only 3; Call target 1, function 2, args 3;
    CreateList elements 1; CreateStruct message_name 1, entries 2. A comprehension is not looked into."""
    for number, value in fields:
        if not isinstance(value, bytes):
            node.is_test = node.is_test or (node.kind == "select" and number == 3 and bool(value))
        elif (node.kind, number) in (("ident", 1), ("select", 2), ("call", 2), ("map", 1)):
            node.name = value.decode()
        elif (node.kind, number) in (("select", 1), ("call", 1), ("call", 3), ("list", 1)):
            node.has_target = node.has_target or (node.kind, number) == ("call", 1)
            node.children.append(_expr(value, positions))
        elif (node.kind, number) == ("map", 2):
            # Entry: field_key 2 (a name), map_key 3, value 4
            entry = [part for key, part in _fields(value) if key in (3, 4) and isinstance(part, bytes)]
            node.children.extend(_expr(part, positions) for part in entry)


def _part(fields: dict[int, int | bytes], number: int) -> bytes:
    value = fields[number]
    if not isinstance(value, bytes):
        raise ValueError("the CEL library serialised something else than a parsed expression")
    return value


def _fields(data: bytes) -> _Fields:
    """The fields of one protobuf message, in order: field number with an integer or the bytes."""
    return list(_read_fields(data))


def _read_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        wire_type = key & 7
        if wire_type == 0:
            number, at = _varint(data, at)
            yield key >> 3, number
        else:
            length = {1: 8, 5: 4}.get(wire_type)
            if length is None:
                length, at = _varint(data, at)
            yield key >> 3, data[at : at + length]
            at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
