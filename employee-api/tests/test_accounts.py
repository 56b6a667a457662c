"""Accounts: reading and changing them, deactivation, and the last user with a management role."""

from typing import Any

import pytest

from shop_kit.employee_api import (
    MODES,
    NO_SESSION,
    PASSWORD,
    Api,
    StartApi,
    on_each_database,
    path,
    started_with,
    status_and_body,
)

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
        await api.log_in("grace@X")


@on_each_database
async def test_an_email_of_another_user_is_refused_in_any_case(api: Api) -> None:
    taken, user = await api.add_user(email="ada@x"), await api.add_user()
    response = await api.client.patch(path(user), json={"name": "Other", "email": "ADA@X"})
    assert status_and_body(response) == (409, {"error": "Email already registered"})
    assert (await api.client.get(path(user))).json()["name"] == user["name"]
    assert (await api.client.patch(path(taken), json={"email": "ADA@X"})).json()["email"] == "ADA@X"


async def test_an_invalid_value_is_refused_by_the_name_of_its_field_as_is_all_of_oneself_but_the_name(
    start_api: StartApi,
) -> None:
    async with started_with(start_api, "enforce", "ceo", "qa") as (api, [_, user]):
        before = (await api.client.get("/api/auth/me")).json()
        invalid: dict[str, Any] = {"name": None, "role": "", "email": " \t", "dept": "a\0b"}
        invalid |= dict.fromkeys(("id", "password", "approved", "deactivated_at", "color"), "x")
        for url, fields in (
            (path(user), invalid),
            ("/api/auth/me", invalid | {"role": "qa", "email": "x", "dept": ""}),
        ):
            for field, value in fields.items():
                response = await api.client.patch(url, json={"name": "Other", field: value})
                assert response.status_code == 400
                assert response.json()["error"].startswith(f"{field} ")
        assert (await api.client.get("/api/auth/me")).json() == before


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
        session = await api.log_in(user["email"])
        await api.execute("UPDATE users SET approved = false WHERE role = 'employee'")
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
        session = await api.log_in(user["email"])
        for _ in range(2):
            deactivated = (await api.client.post(path(user, "/deactivate"))).json()["deactivated_at"]
            assert deactivated is not None
        credentials = {"email": user["email"], "password": PASSWORD}
        reset = (await api.client.post(path(user, "/password-reset"))).json()["token"]
        new = {"token": reset, "password": PASSWORD}
        assert (await api.client.post("/api/auth/password-reset", json=new)).status_code == 200
        response = await api.client.post("/api/auth/login", json=credentials)
        assert status_and_body(response) == (401, {"error": "Invalid email or password"})
        for _ in range(2):
            assert (await api.client.post(path(user, "/reactivate"))).json()["deactivated_at"] is None
        assert status_and_body(await api.client.get("/api/auth/me", headers=session)) == NO_SESSION
        await api.log_in(user["email"])
        changes = {activity["action"]: activity["changes"] for activity in (await api.activities())[:4]}
        assert list(changes) == ["reactivated", "reset_password", "allowed_password_reset", "deactivated"]
        assert changes["deactivated"] == {"deactivated_at": {"before": None, "after": deactivated}}


@pytest.mark.parametrize(
    ("method", "action", "recorded"), [("POST", "/deactivate", "deactivated"), ("DELETE", "", "deleted")]
)
async def test_who_ends_their_own_access_is_recorded_as_the_actor_while_they_exist(
    start_api: StartApi, method: str, action: str, recorded: str
) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [me, other]):
        assert (await api.client.request(method, path(me, action))).status_code == 200
        assert status_and_body(await api.client.get("/api/auth/users")) == NO_SESSION
        activities = await api.client.get("/api/activities", headers=await api.log_in(other["email"]))
        activity = activities.json()["items"][0]
        actor = me["id"] if recorded == "deactivated" else None
        assert (activity["action"], activity["actor_id"], activity["subject_id"]) == (recorded, actor, me["id"])


UNFIT = [
    "UPDATE users SET role = 'qa' WHERE role = 'cto'",
    "UPDATE users SET approved = false WHERE role = 'cto'",
    "UPDATE users SET deactivated_at = created_at WHERE role = 'cto'",
]


@pytest.mark.parametrize("unfit", UNFIT)
async def test_the_last_user_who_can_manage_is_not_demoted_deactivated_or_deleted(
    start_api: StartApi, unfit: str
) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [user, other]):
        await api.execute(unfit)
        for method, action, end in (
            ("PATCH", "", "given another role"),
            ("POST", "/deactivate", "deactivated"),
            ("DELETE", "", "deleted"),
        ):
            response = await api.client.request(method, path(user, action), json={"role": "qa"})
            assert status_and_body(response) == (409, {"error": f"The last leader can't be {end}"})
        assert (await api.client.delete(path(other))).status_code == 200
        assert (await api.client.patch(path(user), json={"role": "manager"})).json()["role"] == "manager"


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_the_last_leader_can_be_deleted_but_not_demoted_without_authorization(
    start_api: StartApi, mode: str
) -> None:
    async with started_with(start_api, mode, "ceo", "cto") as (api, [user, other]):
        await api.execute(UNFIT[1])  # who can't manage may be given another role
        for changed, status in ((other, 200), (user, 409)):
            assert (await api.client.patch(path(changed), json={"role": "qa"})).status_code == status
        assert (await api.client.post(path(user, "/deactivate"))).status_code == 409
        assert (await api.client.delete(path(user))).status_code == 200
