"""Adds departments to invitations, and strips surrounding white space from users' `email_key`.

If another user already has the stripped key, the key stays unchanged: its user can log in only with another address.
"""

import sqlalchemy as sa
from alembic import op

revision: str = "0003"
down_revision: str | None = "0002"

_USERS = sa.table("users", sa.column("id", sa.Uuid()), sa.column("email_key", sa.Text()))


def upgrade() -> None:
    with op.batch_alter_table("single_use_links") as links:
        links.add_column(sa.Column("dept", sa.Text(), nullable=False, server_default=sa.text("''")))
    _strip_email_keys()


def _strip_email_keys() -> None:
    connection = op.get_bind()
    keys = {row.id: row.email_key for row in connection.execute(sa.select(_USERS))}
    taken = set(keys.values())
    for user_id, key in keys.items():
        stripped = key.strip()
        if stripped not in taken:
            taken.add(stripped)
            connection.execute(sa.update(_USERS).where(_USERS.c.id == user_id).values(email_key=stripped))
