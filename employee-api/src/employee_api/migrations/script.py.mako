"""${message.rstrip(".")}."""

import sqlalchemy as sa
from alembic import op
${imports + "\n" if imports else ""}\

revision: str = "${up_revision}"
down_revision: str | None = ${'"' + down_revision + '"' if down_revision else None}


def upgrade() -> None:
    ${upgrades if upgrades else "pass"}
