"""Schemas of functions, and conversion of arguments."""

from __future__ import annotations

import dataclasses
import enum
import unittest
from typing import Annotated, Any, Literal, Optional, TypedDict, Union

from arcp_worker import Context, SyncContext, Worker
from arcp_worker._schema import Parameters, convert, schema_of


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Point:
    x: float
    y: float = 0.0


@dataclasses.dataclass
class Line:
    points: list[Point]
    colour: Colour | None = None


class Options(TypedDict, total=False):
    deep: bool


class SchemaTest(unittest.TestCase):
    def test_annotations(self) -> None:
        point = {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number"}}, "required": ["x"],
                 "additionalProperties": False}
        for hint, want in [
            (str, {"type": "string"}),
            (int, {"type": "integer"}),
            (float, {"type": "number"}),
            (bool, {"type": "boolean"}),
            (Any, {}),
            (dict, {"type": "object"}),
            (list, {"type": "array"}),
            (list[int], {"type": "array", "items": {"type": "integer"}}),
            (dict[str, bool], {"type": "object", "additionalProperties": {"type": "boolean"}}),
            (tuple[int, str], {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2}),
            (tuple[int, ...], {"type": "array", "items": {"type": "integer"}}),
            (Literal["a", 1], {"enum": ["a", 1]}),
            (Optional[str], {"anyOf": [{"type": "string"}, {"type": "null"}]}),
            (Union[int, str], {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
            (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
            (Annotated[int, "how many", {"minimum": 1}], {"type": "integer", "description": "how many", "minimum": 1}),
            (Colour, {"enum": ["red", "blue"]}),
            (Point, point),
            (Options, {"type": "object", "properties": {"deep": {"type": "boolean"}}, "additionalProperties": False}),
        ]:
            with self.subTest(hint=hint):
                self.assertEqual(schema_of(hint), want)

    def test_annotations_without_a_schema(self) -> None:
        for hint in (complex, dict[int, str], Worker, set[int]):
            with self.subTest(hint=hint), self.assertRaises(TypeError):
                schema_of(hint)

    def test_convert(self) -> None:
        self.assertEqual(convert(Line, {"points": [{"x": 1}], "colour": "blue"}), Line([Point(1.0)], Colour.BLUE))
        self.assertIsInstance(convert(float, 1), float)
        self.assertIsInstance(convert(int, 2.0), int)
        self.assertEqual(convert(tuple[int, str], [1, "a"]), (1, "a"))
        self.assertEqual(convert(Union[Point, str], "a"), "a")
        self.assertEqual(convert(Union[str, Point], {"x": 1}), Point(1.0))
        self.assertEqual(convert(Union[int, bool], True), True)
        self.assertEqual(convert(dict[str, Point], {"a": {"x": 1}}), {"a": Point(1.0)})
        self.assertEqual(convert(Optional[Line], None), None)
        with self.assertRaises(ValueError):
            convert(Colour, "green")
        with self.assertRaises(TypeError):
            convert(Point, {"z": 1})

    def test_parameters(self) -> None:
        async def tool(text: str, ctx: Context, times: int = 2, *, point: Point = Point(1), deep: bool = False) -> None: ...

        p = Parameters(tool, (Context, SyncContext))
        self.assertEqual(p.context, "ctx")
        schema = p.schema()
        self.assertEqual(schema["required"], ["text"])
        self.assertEqual(schema["properties"]["times"], {"type": "integer", "default": 2})
        self.assertNotIn("ctx", schema["properties"])
        self.assertEqual(p.bind({"text": "a", "point": {"x": 2}}), {"text": "a", "point": Point(2.0)})
        with self.assertRaises(TypeError):
            p.bind({"txt": "a"})

    def test_all_arguments(self) -> None:
        def tool(**arguments: Any) -> None: ...

        p = Parameters(tool, (Context, SyncContext))
        self.assertEqual(p.schema(), {"type": "object", "properties": {}})
        self.assertEqual(p.bind({"a": 1}), {"a": 1})


class ToolTest(unittest.TestCase):
    def test_description(self) -> None:
        worker = Worker()

        @worker.tool("a", recovery="rerun", timeout=0.5)
        def a() -> None:
            """Does a thing
            well.

            More.
            """

        self.assertEqual(worker._tools["a@1.0.0"].description, {
            "description": "Does a thing well.", "recovery": "rerun", "timeout_ms": 500,
            "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}})

        @worker.tool("b@2.0.0", input_schema={"type": "object"}, description="Says b.")
        def b(x: complex) -> None: ...

    def test_mistakes(self) -> None:
        worker = Worker()
        worker.tool("a")(lambda: None)
        with self.assertRaisesRegex(ValueError, "a@1.0.0 exists already"):
            worker.tool("a")(lambda: None)

        def sync(ctx: Context) -> None: ...
        async def not_sync(ctx: SyncContext) -> None: ...
        def positional(x: int, /) -> None: ...
        def strange(x: complex) -> None: ...

        for function, message in [(sync, "must be a SyncContext"), (not_sync, "must be a Context"), (positional, "as a keyword"),
                                  (strange, "parameter x of .* has no JSON Schema; give the tool an input_schema")]:
            with self.subTest(message), self.assertRaisesRegex(TypeError, message):
                worker.tool("c")(function)
        with self.assertRaisesRegex(ValueError, "from 1 to 1000"):
            Worker(concurrency=0)


if __name__ == "__main__":
    unittest.main()
