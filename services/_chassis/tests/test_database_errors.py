import pytest

from chassis.sql.opening import open_database
from shop_kit.statement_errors import StatementErrors

QUERY = "SELECT 1 AS one"
KINDS = 5


class StoreUnavailable(Exception):
    pass


@pytest.mark.parametrize("method", ["write", "read", "report"])
async def test_any_error_of_a_statement_is_that_of_its_store(
    database_url: str, statement_errors: StatementErrors, method: str
) -> None:
    async with open_database(database_url, unavailable=StoreUnavailable) as database:
        run = getattr(database, method)
        for failing in (*[QUERY] * KINDS, ""):
            statement_errors.failing = failing
            running = run((QUERY, {})) if method == "write" else run(QUERY, {})
            if failing:
                with pytest.raises(StoreUnavailable):
                    await running
            else:
                await running
