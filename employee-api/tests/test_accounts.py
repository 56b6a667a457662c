"""Accounts: reading and changing them, deactivation, and the last user with a management role."""

from typing import Any

import pytest

from shop_lab.world.employee_accounts import MODES, NO_SESSION, UNKNOWN_ID, log_in, path, started_with, status_and_body
from shop_lab.world.employee_api import PASSWORD, Api, StartApi

USER_FIELDS = ["id", "name", "role", "email", "color", "avatar", "dept"]


@pytest.mark.parametrize("mode", MODES)
async def test_an_account_has_the_documented_fields_and_its_state(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo") as (api, [user]):
        account = (await api.client.get(path(user))).json()
        assert list(account) == [*USER_FIELDS, "approved", "deactivated_at", "created_at"]
        assert {name: account[name] for name in USER_FIELDS} == user
        assert (account["approved"], account["deactivated_at"]) == (True, None)


@pytest.mark.parametrize("user_id", [UNKNOWN_ID, "x", "' OR 1=1"])
async def test_an_unknown_account_is_a_404(api: Api, user_id: str) -> None:
    user = {"id": user_id}
    for method, action in [("GET", ""), ("PATCH", ""), ("POST", "/deactivate"), ("POST", "/reactivate")]:
        response = await api.client.request(method, path(user, action), json={})
        assert status_and_body(response) == (404, {"error": "User not found"})


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_users_see_and_rename_themselves(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "qa") as (api, [user]):
        assert (await api.client.get("/api/auth/me")).json()["id"] == user["id"]
        renamed = await api.client.patch("/api/auth/me", json={"name": "Grace Hopper"})
        assert (renamed.status_code, renamed.json()["name"], renamed.json()["avatar"]) == (200, "Grace Hopper", "GH")
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"]) == ("updated", user["id"])
        assert activity["changes"] == {"name": {"before": "User 0", "after": "Grace Hopper"}}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("method", ["GET", "PATCH"])
async def test_ones_own_account_requires_a_session_in_every_mode(
    start_api_on_sqlite: StartApi, mode: str, method: str
) -> None:
    async with start_api_on_sqlite(auth_mode=mode) as api:
        response = await api.client.request(method, "/api/auth/me", json={"name": "x"})
        assert status_and_body(response) == NO_SESSION


@pytest.mark.parametrize("field", ["role", "email", "dept", "approved", "id"])
async def test_users_cannot_change_more_of_themselves_than_their_name(
    start_api_on_sqlite: StartApi, field: str
) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "qa") as (api, _):
        before = (await api.client.get("/api/auth/me")).json()
        response = await api.client.patch("/api/auth/me", json={"name": "Other", field: "ceo"})
        assert response.status_code == 400
        assert (await api.client.get("/api/auth/me")).json() == before


@pytest.mark.parametrize("mode", MODES)
async def test_management_changes_an_account(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        changes = {"name": "Grace Hopper", "email": "Grace@x", "role": "cto", "dept": "Ships"}
        changed = await api.client.patch(path(user), json=changes)
        assert changed.status_code == 200
        assert changed.json() == (await api.client.get(path(user))).json()
        assert changed.json().items() >= (changes | {"avatar": "GH"}).items()
        assert set((await api.activities())[0]["changes"]) == set(changes)
        await log_in(api, "grace@X")


async def test_a_change_that_changes_nothing_records_no_activity(api: Api) -> None:
    user = await api.add_user(role="qa")
    for patch in ({}, {"role": "qa", "name": user["name"]}):
        assert (await api.client.patch(path(user), json=patch)).status_code == 200
    assert len(await api.activities()) == 1


async def test_an_email_of_white_space_is_refused(api_on_sqlite: Api) -> None:
    user = await api_on_sqlite.add_user()
    response = await api_on_sqlite.client.patch(path(user), json={"email": " \t"})
    assert status_and_body(response) == (400, {"error": "email must not be white space"})


async def test_an_email_of_another_user_is_refused_in_any_case(api: Api) -> None:
    taken, user = await api.add_user(email="ada@x"), await api.add_user()
    response = await api.client.patch(path(user), json={"name": "Other", "email": "ADA@X"})
    assert status_and_body(response) == (409, {"error": "Email already registered"})
    assert (await api.client.get(path(user))).json()["name"] == user["name"]
    assert (await api.client.patch(path(taken), json={"email": "ADA@X"})).json()["email"] == "ADA@X"


@pytest.mark.parametrize(
    "patch",
    [{"name": ""}, {"name": None}, {"role": ""}, {"role": 1}, {"email": ""}, {"dept": None}, {"dept": "a\0b"}],
)
async def test_an_invalid_value_is_refused_by_the_name_of_its_field(api_on_sqlite: Api, patch: dict[str, Any]) -> None:
    user = await api_on_sqlite.add_user()
    response = await api_on_sqlite.client.patch(path(user), json=patch)
    assert response.status_code == 400
    assert next(iter(patch)) in response.json()["error"]


@pytest.mark.parametrize("field", ["id", "password", "password_hash", "approved", "deactivated_at", "color"])
async def test_other_fields_are_refused(api_on_sqlite: Api, field: str) -> None:
    user = await api_on_sqlite.add_user()
    assert (await api_on_sqlite.client.patch(path(user), json={field: "x"})).status_code == 400


async def test_a_change_of_an_outdated_account_is_refused(api: Api) -> None:
    user = await api.add_user()
    read = await api.client.get(path(user))
    tag = {"if-match": read.headers["etag"]}
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


@pytest.mark.parametrize(
    ("method", "action"), [("PATCH", ""), ("POST", "/deactivate"), ("POST", "/reactivate")], ids=str
)
async def test_only_management_administers_accounts(start_api_on_sqlite: StartApi, method: str, action: str) -> None:
    async with started_with(start_api_on_sqlite, "enforce", "tech_lead") as (api, [user]):
        response = await api.client.request(method, path(user, action), json={"role": "ceo"})
        assert status_and_body(response) == (403, {"error": "Not allowed"})
        assert (await api.client.get("/api/auth/me")).json()["role"] == "tech_lead"


@pytest.mark.parametrize("mode", MODES)
async def test_a_deactivated_user_cannot_log_in_until_reactivated(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        credentials = {"email": user["email"], "password": PASSWORD}
        for _ in range(2):
            deactivated = (await api.client.post(path(user, "/deactivate"))).json()["deactivated_at"]
            assert deactivated is not None
        response = await api.client.post("/api/auth/login", json=credentials)
        assert status_and_body(response) == (401, {"error": "Invalid email or password"})
        for _ in range(2):
            assert (await api.client.post(path(user, "/reactivate"))).json()["deactivated_at"] is None
        await log_in(api, user["email"])
        activities = (await api.activities())[:3]
        assert [activity["action"] for activity in activities] == ["reactivated", "deactivated", "created"]
        assert activities[1]["changes"] == {"deactivated_at": {"before": None, "after": deactivated}}


async def test_deactivation_ends_all_sessions_for_good(start_api: StartApi) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        session = await log_in(api, user["email"])
        assert (await api.client.get("/api/auth/me", headers=session)).status_code == 200
        for action in ("/deactivate", "/reactivate"):
            await api.client.post(path(user, action))
            assert status_and_body(await api.client.get("/api/auth/me", headers=session)) == NO_SESSION


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
