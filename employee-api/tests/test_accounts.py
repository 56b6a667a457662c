"""Accounts: reading and changing them, deactivation, and the last user with a management role."""

from typing import Any

import pytest

from shop_kit.employee_accounts import MODES, NO_SESSION, log_in, path, started_with, status_and_body
from shop_kit.employee_api import PASSWORD, Api, StartApi

USER_FIELDS = ["id", "name", "role", "email", "color", "avatar", "dept"]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_users_see_and_rename_themselves(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "cto") as (api, [user]):
        assert (await api.client.get("/api/auth/me")).json()["id"] == user["id"]
        renamed = await api.client.patch("/api/auth/me", json={"name": "Grace Hopper"})
        assert (renamed.status_code, renamed.json()["name"], renamed.json()["avatar"]) == (200, "Grace Hopper", "GH")
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"]) == ("updated", user["id"])
        assert activity["changes"] == {"name": {"before": "User 0", "after": "Grace Hopper"}}


async def test_users_cannot_change_more_of_themselves_than_their_name(start_api_on_sqlite: StartApi) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "qa") as (api, _):
        before = (await api.client.get("/api/auth/me")).json()
        for field in ("role", "email", "dept", "approved", "id"):
            response = await api.client.patch("/api/auth/me", json={"name": "Other", field: "ceo"})
            assert status_and_body(response) == (400, {"error": f"{field} is unknown"})
        assert (await api.client.get("/api/auth/me")).json() == before


@pytest.mark.parametrize("mode", MODES)
async def test_management_changes_an_account(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        changes = {"name": "Grace Hopper", "email": "Grace@x", "role": "cto", "dept": "Ships"}
        account = (await api.client.get(path(user))).json()
        assert list(account) == [*USER_FIELDS, "approved", "deactivated_at", "created_at"]
        assert account.items() >= (user | {"approved": True, "deactivated_at": None}).items()
        changed = await api.client.patch(path(user), json=changes)
        assert changed.status_code == 200
        assert changed.json() == (await api.client.get(path(user))).json()
        assert changed.json().items() >= (changes | {"avatar": "GH"}).items()
        assert set((await api.activities())[0]["changes"]) == set(changes)
        await log_in(api, "grace@X")


async def test_an_email_of_another_user_is_refused_in_any_case(api: Api) -> None:
    taken, user = await api.add_user(email="ada@x"), await api.add_user()
    response = await api.client.patch(path(user), json={"name": "Other", "email": "ADA@X"})
    assert status_and_body(response) == (409, {"error": "Email already registered"})
    assert (await api.client.get(path(user))).json()["name"] == user["name"]
    assert (await api.client.patch(path(taken), json={"email": "ADA@X"})).json()["email"] == "ADA@X"


@pytest.mark.parametrize(
    "patch",
    [
        *({"name": ""}, {"name": None}, {"role": ""}, {"role": 1}, {"email": ""}, {"email": " \t"}, {"dept": None}),
        *({"dept": "a\0b"}, {"id": "x"}, {"password": "x"}, {"approved": "x"}, {"deactivated_at": "x"}, {"color": "x"}),
    ],
)
async def test_an_invalid_value_is_refused_by_the_name_of_its_field(api_on_sqlite: Api, patch: dict[str, Any]) -> None:
    user = await api_on_sqlite.add_user()
    response = await api_on_sqlite.client.patch(path(user), json=patch)
    assert response.status_code == 400
    assert next(iter(patch)) in response.json()["error"]


async def test_a_change_of_an_outdated_account_is_refused_and_no_change_records_no_activity(api: Api) -> None:
    user = await api.add_user(role="qa")
    for patch in ({}, {"role": "qa", "name": user["name"]}):
        unchanged = await api.client.patch(path(user), json=patch)
        assert unchanged.status_code == 200
    assert len(await api.activities()) == 1
    tag = {"if-match": unchanged.headers["etag"]}
    first = await api.client.patch(path(user), json={"dept": "a"}, headers=tag)
    second = await api.client.patch(path(user), json={"dept": "b"}, headers=tag)
    assert [first.status_code, second.status_code] == [200, 412]
    assert (await api.client.get(path(user), headers={"if-none-match": first.headers["etag"]})).status_code == 304


async def test_setting_a_role_approves_a_user(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "employee") as (api, [_, user]):
        session = await log_in(api, user["email"])
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql("UPDATE users SET approved = false WHERE role = 'employee'")
        assert (await api.client.get("/api/auth/me", headers=session)).json()["approved"] is False
        refused = await api.client.get(path(user), headers=session)
        assert status_and_body(refused) == (403, {"error": "Your account awaits approval"})
        assert (await api.client.patch(path(user), json={"name": "Ada"})).json()["approved"] is False
        assert (await api.client.patch(path(user), json={"role": "employee"})).json()["approved"] is True
        assert (await api.activities())[0]["changes"] == {"approved": {"before": False, "after": True}}
        assert (await api.client.get(path(user), headers=session)).status_code == 200


@pytest.mark.parametrize("mode", MODES)
async def test_a_deactivated_user_cannot_log_in_until_reactivated(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        credentials = {"email": user["email"], "password": PASSWORD}
        session = await log_in(api, user["email"])
        for _ in range(2):
            deactivated = (await api.client.post(path(user, "/deactivate"))).json()["deactivated_at"]
            assert deactivated is not None
        response = await api.client.post("/api/auth/login", json=credentials)
        assert status_and_body(response) == (401, {"error": "Invalid email or password"})
        for _ in range(2):
            assert (await api.client.post(path(user, "/reactivate"))).json()["deactivated_at"] is None
        assert status_and_body(await api.client.get("/api/auth/me", headers=session)) == NO_SESSION
        await log_in(api, user["email"])
        activities = (await api.activities())[:3]
        assert [activity["action"] for activity in activities] == ["reactivated", "deactivated", "created"]
        assert activities[1]["changes"] == {"deactivated_at": {"before": None, "after": deactivated}}


async def test_users_who_deactivate_themselves_are_recorded_as_the_actor(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [me, other]):
        assert (await api.client.post(path(me, "/deactivate"))).status_code == 200
        activities = await api.client.get("/api/activities", headers=await log_in(api, other["email"]))
        activity = activities.json()["items"][0]
        assert (activity["action"], activity["actor_id"], activity["subject_id"]) == ("deactivated", me["id"], me["id"])


UNFIT = [
    "UPDATE users SET role = 'qa' WHERE role = 'cto'",
    "UPDATE users SET approved = false WHERE role = 'cto'",
    "UPDATE users SET deactivated_at = created_at WHERE role = 'cto'",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("unfit", UNFIT)
async def test_the_last_user_who_can_manage_is_neither_demoted_nor_deactivated(
    start_api: StartApi, mode: str, unfit: str
) -> None:
    async with started_with(start_api, mode, "ceo", "cto") as (api, [user, _]):
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql(unfit)
        demoted = await api.client.patch(path(user), json={"role": "qa"})
        assert status_and_body(demoted) == (409, {"error": "The last leader can't be given another role"})
        deactivated = await api.client.post(path(user, "/deactivate"))
        assert status_and_body(deactivated) == (409, {"error": "The last leader can't be deactivated"})
        assert (await api.client.patch(path(user), json={"role": "manager"})).json()["role"] == "manager"


@pytest.mark.parametrize("unfit", UNFIT)
async def test_the_last_user_who_can_manage_is_not_deleted(start_api: StartApi, unfit: str) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [user, other]):
        async with api.engine.begin() as connection:
            await connection.exec_driver_sql(unfit)
        response = await api.client.delete(path(user))
        assert status_and_body(response) == (409, {"error": "The last leader can't be deleted"})
        assert (await api.client.delete(path(other))).status_code == 200


@pytest.mark.parametrize("unfit", UNFIT[1:])
async def test_a_user_who_cannot_manage_may_lose_their_management_role(api: Api, unfit: str) -> None:
    user = await api.add_user(role="cto")
    async with api.engine.begin() as connection:
        await connection.exec_driver_sql(unfit)
    assert (await api.client.patch(path(user), json={"role": "qa"})).status_code == 200
