import itertools
import random
import re
import unicodedata

import pytest

from chassis.values.cards import has_card_number, mask_cards
from chassis.values.countries import COUNTRY_NAMES, format_postal_code, normalize_country, postal_formats

VISA, LONGEST = "4111 1111 1111 1111", "6304 0000 0000 0000 000"


WITH_CARDS = [VISA, "4111111111111111", "4222222222222", LONGEST, "Visa4111-1111-1111-1111, thanks"]
WITH_CARDS += ["12 4111\u20111111\u00a01111\n1111", "4111 1111 1111 1111 20095"]
WITHOUT = ["", "1 Harbour Street", "4111 1111 1111 1112", "+49 40 1234567", "1" * 20, "1 " * 99]
WITHOUT += ["41111111-1111-1111-8abc-abcdefabcdef@example.com", *(8 * "42" + n * "ab" for n in (8, 12, 24))]


@pytest.mark.parametrize(
    ("text", "has_one"), [*((text, True) for text in WITH_CARDS), *((text, False) for text in WITHOUT)]
)
def test_a_card_number_is_found_and_other_numbers_are_no_cards(text: str, has_one: bool) -> None:
    assert has_card_number(text) is has_one


def test_every_spelling_of_a_card_number_is_found_and_masked() -> None:
    groupings = [("4242424242424242", "4" * 4), ("4242424242424242", "2" * 8), ("4242424242424242", "1" * 16)]
    groupings += [("4242424242424242", "88"), ("378282246310005", "465"), ("36227206271667", "464")]
    separators = " ", "-", ".", "/", "_", ",", ":", "\xa0", "\u2011", "\u200b", " - ", "·", "|", "\u3000", "+", ""
    scripts, around = ("0", "\u0660", "\u0966", "\uff10"), ("{}", "x{}y", "12, {} 20095", "{} 123")
    for (digits, sizes), separator, zero, text in itertools.product(groupings, separators, scripts, around):
        taken = iter(digits)
        spelled = separator.join("".join(itertools.islice(taken, int(size))) for size in sizes)
        if separator or text != "{} 123":
            spelled = text.format(spelled.translate({ord("0") + n: ord(zero) + n for n in range(10)}))
            assert has_card_number(spelled), spelled
            assert len(re.findall(r"\d", mask_cards(spelled))) <= len("1220095"), spelled


# Postal codes and phone numbers of ten countries, an IP address and a mailbox; # is a digit.
FORMATS = """Lenina 5, ###### 8 9## ### ## ##; 93 Jianguo Rd ###### 13#########; ##### +49 17# ########
##### 4917#########; Packstation ### ######## #####; #### Main St #####-#### (###) ###-####; #########@qq.com
##### 06 ## ## ## ## / 06 ## ## ## ##; ###-#### 0##-####-####; MG Road ###### +91 ##### #####; 4###-### 9## ### ###
#####-### +55 11 9########; ###### +65 #### ####; ##### +628##########; ####-#### 192.168.###.###:#####"""


@pytest.mark.parametrize("written", re.split("; |\n", FORMATS))
def test_postal_codes_with_phone_numbers_are_no_card_numbers(written: str) -> None:
    numbers = random.Random(written)  # noqa: S311 - the same numbers in every run
    texts = (re.sub("#", lambda _: str(numbers.randrange(10)), written) for _ in range(2000))
    assert [text for text in texts if has_card_number(text)] == []


@pytest.mark.parametrize(
    ("code", "country", "shown"),
    [
        (2134, "United States", "02134"),
        (2134, "U.S.", "02134"),
        (21341234, "USA", "02134-1234"),
        (1067, "germany", "01067"),
        (600001, "JP", "060-0001"),
        (1310100, "Brazil", "01310-100"),
        (950, "POL", "00-950"),
        (11455, "Sweden", "114 55"),
        (800, "AU", "0800"),
        (12345, "Austria", "12345"),  # too long for an Austrian code
        (2134, "United Kingdom", "2134"),
        (2134, "Atlantis", "2134"),
        (0, "Germany", ""),
    ],
)
def test_a_postal_code_has_the_zeros_and_separators_of_its_country(code: int, country: str, shown: str) -> None:
    assert format_postal_code(code, country) == shown


def test_countries_are_listed_once_by_name() -> None:
    assert list(COUNTRY_NAMES) == sorted(set(COUNTRY_NAMES), key=lambda name: unicodedata.normalize("NFKD", name))


def test_spellings_of_a_country_are_normalized_and_have_one_list_of_formats() -> None:
    assert {normalize_country(name) for name in ("U.S.A.", "usa", " Usa ")} == {"usa"}
    assert normalize_country("United\u00a0 States") == "united states"
    assert postal_formats("uk") == postal_formats("GBR") == postal_formats("Great Britain") == []
    assert postal_formats("us") == postal_formats("United States of America") == ["#####", "#####-####"]
    assert postal_formats("Atlantis") is None
