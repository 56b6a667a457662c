"""Makes existing API tokens expire within 90 days of their creation."""

from datetime import timedelta

import sqlalchemy as sa
from alembic import op

revision: str = "0005"
down_revision: str | None = "0004"

_TIMES = (sa.column(name, sa.DateTime(timezone=True)) for name in ("created_at", "expires_at"))
_TOKENS = sa.table("api_tokens", sa.column("id", sa.Uuid()), *_TIMES)


def upgrade() -> None:
    connection = op.get_bind()
    for token in connection.execute(sa.select(_TOKENS)).all():
        latest = token.created_at + timedelta(days=90)
        if token.expires_at is None or token.expires_at > latest:
            connection.execute(sa.update(_TOKENS).where(_TOKENS.c.id == token.id).values(expires_at=latest))
