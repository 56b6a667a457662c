import hmac

import pytest

from chassis.values.keys import HmacKeys

OLD, NEW = "o" * 32, "n" * 32


def test_the_first_key_makes_new_hmacs_and_the_others_are_accepted() -> None:
    digests = HmacKeys.parse(f"{NEW},{OLD}").digests(b"data")
    assert digests == [hmac.digest(key.encode(), b"data", "sha256") for key in (NEW, OLD)]


def test_a_key_has_the_same_id_in_any_position() -> None:
    assert list(HmacKeys.parse(f"{NEW},{OLD}").keys) == [HmacKeys.parse(key).current_id for key in (NEW, OLD)]


@pytest.mark.parametrize("text", ["", "too short", f"{NEW},", f"{NEW},too short"])
def test_a_short_key_is_refused_without_being_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="at least 32 characters") as refused:
        HmacKeys.parse(text)
    assert "too short" not in str(refused.value)


def test_keys_are_not_in_the_repr() -> None:
    assert OLD not in repr(HmacKeys.parse(OLD))
