from employee_api.exports.schemas import ExportQuery
from employee_api.http.inputs import QueryParameters
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.pagination import PageQuery
from employee_api.schemas import Deleted, Success


async def confirm(_call: Call[ExportQuery]) -> Success:
    return Success()


# mypy must find the errors that are ignored here, or it reports the comment as unused.
OPERATIONS: list[Operation] = [
    Endpoint("GET", "/", "", QueryParameters(ExportQuery), JsonOutput(Success), confirm),
    Endpoint("GET", "/", "", QueryParameters(PageQuery), JsonOutput(Success), confirm),  # type: ignore[arg-type]
    Endpoint("GET", "/", "", QueryParameters(ExportQuery), JsonOutput(Deleted), confirm),  # type: ignore[arg-type]
]


def test_an_operation_is_named_after_its_handler() -> None:
    assert {operation.name for operation in OPERATIONS} == {"confirm"}
