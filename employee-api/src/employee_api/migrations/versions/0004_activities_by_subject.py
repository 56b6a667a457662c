"""Adds an index for listing the activities of one user or task."""

from alembic import op

revision: str = "0004"
down_revision: str | None = "0003"

_INDEX = "ix_activities_subject_id_created_at_id"


def upgrade() -> None:
    op.create_index(_INDEX, "activities", ["subject_id", "created_at", "id"])
