"""Accounts: reading and changing them, deactivation, and the last user with a management role."""

import pytest

from shop_kit.employee_api import MODES, NO_SESSION, PASSWORD, Api, StartApi, on_each_database, path, started_with

USER_FIELDS = ["id", "name", "role", "email", "color", "avatar", "dept"]


@pytest.mark.parametrize("mode", ["observe", "enforce"])
async def test_users_see_and_rename_themselves(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "cto") as (api, [user]):
        assert (await api.fetch("GET /api/auth/me"))["id"] == user["id"]
        renamed = await api.fetch("PATCH /api/auth/me", {"name": "Grace Hopper"})
        assert renamed == await api.fetch("GET /api/auth/me")
        assert (renamed["name"], renamed["avatar"]) == ("Grace Hopper", "GH")
        activity = (await api.activities())[0]
        assert (activity["action"], activity["actor_id"]) == ("updated", user["id"])
        assert activity["changes"] == {"name": {"before": "User 0", "after": "Grace Hopper"}}


@pytest.mark.parametrize("mode", MODES)
async def test_management_changes_an_account(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        changes = {"name": "Grace Hopper", "email": "Grace@x", "role": "cto", "dept": "Ships"}
        account = await api.fetch(f"GET {path(user)}")
        assert list(account) == [*USER_FIELDS, "approved", "deactivated_at", "created_at"]
        assert account.items() >= (user | {"approved": True, "deactivated_at": None}).items()
        changed = await api.fetch(f"PATCH {path(user)}", changes)
        assert changed == account | changes | {"avatar": "GH"} == await api.fetch(f"GET {path(user)}")
        assert set((await api.activities())[0]["changes"]) == set(changes)
        await api.log_in("grace@X")


@on_each_database
async def test_an_email_of_another_user_is_refused_in_any_case(api: Api) -> None:
    taken, user = await api.add_user(email="ada@x"), await api.add_user()
    refused = await api.answer(f"PATCH {path(user)}", {"name": "Other", "email": "ADA@X"})
    assert refused == (409, {"error": "Email already registered"})
    assert (await api.fetch(f"GET {path(user)}"))["name"] == user["name"]
    assert (await api.fetch(f"PATCH {path(taken)}", {"email": "ADA@X"}))["email"] == "ADA@X"


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


@pytest.mark.parametrize("mode", MODES)
async def test_a_deactivated_user_cannot_log_in_until_reactivated(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "qa") as (api, [_, user]):
        session = await api.log_in(user["email"])
        first, again = [await api.fetch(f"POST {path(user)}/deactivate") for _ in range(2)]
        assert first["deactivated_at"] == again["deactivated_at"] is not None
        reset = await api.fetch(f"POST {path(user)}/password-reset")
        await api.fetch("POST /api/auth/password-reset", {"token": reset["token"], "password": PASSWORD})
        refused = await api.attempt_login(user["email"])
        assert (refused.status_code, refused.json()) == (401, {"error": "Invalid email or password"})
        for _ in range(2):
            assert (await api.fetch(f"POST {path(user)}/reactivate"))["deactivated_at"] is None
        assert await api.answer("GET /api/auth/me", headers=session) == NO_SESSION
        await api.log_in(user["email"])
        changes = {activity["action"]: activity["changes"] for activity in (await api.activities())[:4]}
        assert list(changes) == ["reactivated", "reset_password", "allowed_password_reset", "deactivated"]
        assert changes["deactivated"] == {"deactivated_at": {"before": None, "after": first["deactivated_at"]}}


@pytest.mark.parametrize(
    ("method", "action", "recorded"), [("POST", "/deactivate", "deactivated"), ("DELETE", "", "deleted")]
)
async def test_ending_ones_own_access_is_recorded(start_api: StartApi, method: str, action: str, recorded: str) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [me, other]):
        await api.fetch(f"{method} {path(me)}{action}")
        assert await api.answer("GET /api/auth/users") == NO_SESSION
        api.client.headers.update(await api.log_in(other["email"]))
        activity = (await api.activities())[0]
        actor = me["id"] if recorded == "deactivated" else None
        assert (activity["action"], activity["actor_id"], activity["subject_id"]) == (recorded, actor, me["id"])


UNFIT = [
    "UPDATE users SET role = 'qa' WHERE role = 'cto'",
    "UPDATE users SET approved = false WHERE role = 'cto'",
    "UPDATE users SET deactivated_at = created_at WHERE role = 'cto'",
]


@pytest.mark.parametrize("unfit", UNFIT)
async def test_the_last_leader_is_not_demoted_deactivated_or_deleted(start_api: StartApi, unfit: str) -> None:
    async with started_with(start_api, "enforce", "ceo", "cto") as (api, [user, other]):
        await api.execute(unfit)
        for request_line, end in (
            (f"PATCH {path(user)}", "given another role"),
            (f"POST {path(user)}/deactivate", "deactivated"),
            (f"DELETE {path(user)}", "deleted"),
        ):
            refused = await api.answer(request_line, {"role": "qa"})
            assert refused == (409, {"error": f"The last leader can't be {end}"})
        await api.fetch(f"DELETE {path(other)}")
        assert (await api.fetch(f"PATCH {path(user)}", {"role": "manager"}))["role"] == "manager"


@pytest.mark.parametrize("mode", ["off", "observe"])
async def test_without_authorization_the_last_leader_can_be_deleted(start_api: StartApi, mode: str) -> None:
    async with started_with(start_api, mode, "ceo", "cto") as (api, [user, other]):
        await api.execute(UNFIT[1])  # who can't manage may be given another role
        for changed, status in ((other, 200), (user, 409)):
            assert (await api.answer(f"PATCH {path(changed)}", {"role": "qa"}))[0] == status
        assert (await api.answer(f"POST {path(user)}/deactivate"))[0] == 409
        await api.fetch(f"DELETE {path(user)}")
