"""Columns that several migrations create. Don't change them, or new databases would differ from old ones."""

import sqlalchemy as sa
from alembic import op


def create_table(name: str, key: sa.Column[object], *columns: sa.schema.SchemaItem) -> None:
    op.create_table(name, key, *columns, sa.PrimaryKeyConstraint(key.name, name=f"pk_{name}"))


def row_id() -> sa.Column[object]:
    return sa.Column("id", sa.Uuid(), nullable=False)


def timestamp(name: str, *, nullable: bool = False, index: bool = False) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=nullable, index=index)


def texts(*names: str) -> list[sa.Column[object]]:
    return [sa.Column(name, sa.Text(), nullable=False) for name in names]


def user(table: str, column: str, ondelete: str, *, nullable: bool) -> sa.Column[object]:
    reference = sa.ForeignKey("users.id", name=f"fk_{table}_{column}_users", ondelete=ondelete)
    return sa.Column(column, sa.Uuid(), reference, nullable=nullable, index=True)
