"""Statements to PostgreSQL and commands to Valkey, with their inverses."""

from shop_lab.incidents.catalogue import StoreInjection
from shop_lab.incidents.state import Inverse
from shop_lab.incidents.targets import Target


class StoreMechanism:
    """Holds a transaction open, or applies statements that others undo; the store itself ends both in time."""

    def prepare(self, injection: StoreInjection, target: Target, token: str, seconds: float) -> Inverse:
        store, database = injection.store, injection.database
        probe = injection.save or ("SELECT 1" if store == "postgresql" else "PING")
        saved = target.query(store, database, probe)
        restore = [statement.replace("{saved}", saved) for statement in injection.restore]
        return {"store": store, "database": database, "restore": restore, "token": token, "seconds": seconds}

    def act(self, injection: StoreInjection, target: Target, inverse: Inverse) -> None:
        pause, token = f"{inverse['seconds']:.0f}", inverse["token"]
        if injection.hold:
            statements = ["BEGIN", *injection.hold, pause, "COMMIT"]
            target.background(injection.store, injection.database, statements, token)
            return
        target.background(injection.store, injection.database, [pause, *inverse["restore"]], token)
        for statement in injection.apply:
            target.query(injection.store, injection.database, statement)

    def undo(self, target: Target, inverse: Inverse) -> None:
        target.end_background(inverse["store"], inverse["token"])
        for statement in inverse["restore"]:
            target.query(inverse["store"], inverse["database"], statement)
