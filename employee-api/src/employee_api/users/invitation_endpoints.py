"""Endpoints for invitations to register."""

from http import HTTPStatus

from employee_api.access import Access
from employee_api.fields import parse_id
from employee_api.http.inputs import JsonBody, NoInput
from employee_api.http.operations import Call, Endpoint, Operation
from employee_api.http.outputs import JsonOutput
from employee_api.schemas import Deleted
from employee_api.users.errors import InvitationNotFound, RegistrationClosed
from employee_api.users.invitations import InvitationRepository
from employee_api.users.registration import Registration
from employee_api.users.schemas import CreatedInvitation, InvitationInput, InvitationOutput

_INVITATIONS = "/api/auth/invitations"
_MANAGEMENT = Access.MANAGEMENT


class InvitationEndpoints:
    def __init__(self, invitations: InvitationRepository, registration: Registration) -> None:
        self._invitations = invitations
        self._registration = registration

    def operations(self) -> list[Operation]:
        created = JsonOutput(CreatedInvitation, HTTPStatus.CREATED)
        return [
            Endpoint(
                "POST", _INVITATIONS, "Invite someone to register with a role", JsonBody(InvitationInput), created,
                self.create_invitation, access=_MANAGEMENT, failures=(RegistrationClosed(),),
            ),
            Endpoint(
                "GET", _INVITATIONS, "List the invitations that have not expired, newest first",
                NoInput(), JsonOutput(list[InvitationOutput]), self.list_invitations, access=_MANAGEMENT,
            ),
            Endpoint(
                "DELETE", f"{_INVITATIONS}/{{id}}", "Withdraw an unused invitation",
                NoInput(), JsonOutput(Deleted), self.delete_invitation,
                access=_MANAGEMENT, failures=(InvitationNotFound(),),
            ),
        ]  # fmt: skip

    async def create_invitation(self, call: Call[InvitationInput]) -> CreatedInvitation:
        await self._registration.check_open("create_invitation")
        return await self._invitations.create(call.input, call.actor)

    async def list_invitations(self, _call: Call[None]) -> list[InvitationOutput]:
        return await self._invitations.list_unexpired()

    async def delete_invitation(self, call: Call[None]) -> Deleted:
        invitation_id = parse_id(call.request.path_params["id"])
        if invitation_id is None:
            raise InvitationNotFound
        await self._invitations.delete(invitation_id, call.actor)
        return Deleted(id=invitation_id)
