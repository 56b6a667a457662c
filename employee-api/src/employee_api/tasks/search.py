"""Filters, searches and sorts tasks, with the same results on SQLite and PostgreSQL.

Searching and sorting by title ignore case, even outside ASCII (except in PostgreSQL databases with locale `C`), and
treat composed and decomposed "é" as equal. Nothing else is normalized: "é" is not "e", and "ß" is not "ss".
"""

import unicodedata
from datetime import date
from typing import Annotated, Any

from pydantic import Field, TypeAdapter
from sqlalchemy import ColumnElement, Select, Text, case, event, literal, select
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import GenericFunction
from sqlmodel import col

from employee_api.fields import SortedTitle, in_month
from employee_api.models import Task
from employee_api.pagination import TIMESTAMPS, SortKey
from employee_api.tasks.schemas import Priority, Status, TaskOutput, TaskQuery, TaskSort


class LowerCase(GenericFunction[str]):
    """A SQL function that composes (NFC) and lower-cases text. Its results are compared and sorted by code point."""

    type = Text()
    inherit_cache = True


@compiles(LowerCase, "postgresql")
def _on_postgresql(text: LowerCase, compiler: SQLCompiler, **options: Any) -> str:
    composed = f"normalize({compiler.process(text.clauses, **options)})"
    return f"""(replace(lower({composed}), '\u03c2', '\u03c3') COLLATE "C")"""


@compiles(LowerCase, "sqlite")
def _on_sqlite(text: LowerCase, compiler: SQLCompiler, **options: Any) -> str:
    return f"unicode_lower({compiler.process(text.clauses, **options)})"


def register_functions(engine: AsyncEngine) -> None:
    """Add `unicode_lower` to SQLite, whose own `lower` handles only ASCII. Call this before the first connection."""
    if engine.dialect.name == "sqlite":

        def register(connection: Any, _record: Any) -> None:
            connection.create_function("unicode_lower", 1, unicode_lower, deterministic=True)

        event.listen(engine.sync_engine, "connect", register)


def unicode_lower(text: str) -> str:
    """Compose characters (NFC), then lower-case each character individually, as PostgreSQL does."""
    # Python's `lower` turns "İ" into two characters, and uses a different sigma at the end of a word.
    return unicodedata.normalize("NFC", text).replace("İ", "i").lower().replace("\u03c2", "\u03c3")


_EQUAL_COLUMNS = {
    "status": Task.status,
    "priority": Task.priority,
    "assignee": Task.assignee_id,
    "reporter": Task.reporter_id,
}


def matching_tasks(query: TaskQuery) -> Select[Any]:
    given = query.model_dump(include=set(_EQUAL_COLUMNS), exclude_none=True)
    conditions: list[ColumnElement[bool]] = [col(_EQUAL_COLUMNS[name]) == value for name, value in given.items()]
    if query.unassigned is not None:
        conditions.append(col(Task.assignee_id).is_(None) == query.unassigned)
    if query.due_before is not None:
        conditions.append(col(Task.due_date) < query.due_before)
    if query.month is not None:
        conditions.append(in_month(col(Task.created_at), query.month))
    text = LowerCase(col(Task.title) + "\n" + col(Task.description))
    conditions += [text.like(LowerCase(literal(_containing(word))), escape="/") for word in {*(query.q or "").split()}]
    return select(*TaskOutput.columns(Task)).where(*conditions)


def _containing(word: str) -> str:
    for special in "/%_":
        word = word.replace(special, f"/{special}")
    return f"%{word}%"


def _rank(column: Any, values: type[Status | Priority]) -> ColumnElement[int]:
    return case({value: rank for rank, value in enumerate(values)}, value=col(column), else_=len(values))


_RANKS = TypeAdapter(Annotated[int, Field(ge=0, le=10)])

SORT_KEYS = {
    TaskSort.CREATED_AT: SortKey("created_at", col(Task.created_at), TIMESTAMPS),
    TaskSort.UPDATED_AT: SortKey("updated_at", col(Task.updated_at), TIMESTAMPS),
    TaskSort.DUE_DATE: SortKey("due_date", col(Task.due_date), TypeAdapter(date), optional=True),
    TaskSort.PRIORITY: SortKey("priority", _rank(Task.priority, Priority), _RANKS),
    TaskSort.TITLE: SortKey("title", LowerCase(col(Task.title)), TypeAdapter(SortedTitle)),
    TaskSort.STATUS: SortKey("status", _rank(Task.status, Status), _RANKS),
}
