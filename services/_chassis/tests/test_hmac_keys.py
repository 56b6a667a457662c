import hmac

import pytest

from chassis.values.keys import HmacKeys

OLD, NEW = "o" * 32, "n" * 32


def test_the_first_key_makes_new_hmacs_and_the_others_are_accepted_by_ids_that_do_not_depend_on_the_position() -> None:
    keys = HmacKeys.parse(f"{NEW},{OLD}")
    assert keys.digests(b"data") == [hmac.digest(key.encode(), b"data", "sha256") for key in (NEW, OLD)]
    assert list(keys.keys) == [HmacKeys.parse(key).current_id for key in (NEW, OLD)]


@pytest.mark.parametrize("text", ["", "too short", f"{NEW},", f"{NEW},too short"])
def test_a_short_key_is_refused_and_no_key_is_quoted(text: str) -> None:
    with pytest.raises(ValueError, match="at least 32 characters") as refused:
        HmacKeys.parse(text)
    assert "too short" not in str(refused.value)
    assert OLD not in repr(HmacKeys.parse(OLD))
