import pytest

from chassis.sql.url import PostgresUrl


def test_the_parts_of_a_url_are_decoded() -> None:
    url = PostgresUrl.parse(
        "postgresql://a%40n:p%2Fw@one:1,[::1]:2/the%20name?target_session_attrs=read-write&connect_timeout=3"
        "&sslmode=verify-full&sslrootcert=/a%20b.pem&application_name=shop&options=-c%20jit%3Doff&passfile=/p"
    )
    assert url == PostgresUrl(
        servers=(("one", 1), ("::1", 2)),
        user="a@n",
        password="p/w",
        database="the name",
        session="read-write",
        connect_seconds=3.0,
        settings={"application_name": "shop", "options": "-c jit=off"},
        tls={"sslmode": "verify-full", "sslrootcert": "/a b.pem"},
        other={"passfile": "/p"},
    )


@pytest.mark.parametrize(
    ("url", "servers"),
    [
        ("postgresql://", ((None, None),)),
        ("postgres://one", (("one", None),)),
        ("postgresql:///name?host=/run/postgresql&port=5433", (("/run/postgresql", 5433),)),
        ("postgresql://%2Frun%2Fpostgresql/name", (("/run/postgresql", None),)),
        ("postgresql:///name?host=one,two&port=5433", (("one", 5433), ("two", 5433))),
        ("postgresql://one,two:2/name", (("one", None), ("two", 2))),
        ("postgresql://ignored:1/name?host=one&port=2", (("one", 2),)),
    ],
)
def test_servers_are_named_before_the_path_or_in_the_query(
    url: str, servers: tuple[tuple[str | None, int | None], ...]
) -> None:
    assert PostgresUrl.parse(url).servers == servers


@pytest.mark.parametrize(
    ("parameter", "problem"),
    [
        ("keepalives_idle=5", "the parameter keepalives_idle is not supported"),
        ("hostaddr=10.0.0.7", "the parameter hostaddr is not supported"),
        ("service=7", "the parameter service is not supported"),
        ("channel_binding=require", "the parameter channel_binding supports only disable or prefer"),
        ("load_balance_hosts=random", "the parameter load_balance_hosts supports only disable"),
        ("client_encoding=latin1", "the parameter client_encoding supports only utf-8 or utf8"),
        ("sslmode=verify", "the parameter sslmode is none of allow, disable, "),
        ("target_session_attrs=master", "the parameter target_session_attrs is none of any, "),
        ("connect_timeout=soon", "the parameter connect_timeout is not a whole number"),
        ("sslmode=require&sslrootcert=system", "the parameter sslrootcert supports system only with "),
        ("host=one,two&port=1,2,3", "host and port have 2 and 3 values"),
        ("port=70000", "the port is not a number from 1 to 65535"),
        ("unknown=7", "not a URL that libpq accepts"),
        ("sslmode", "not a URL that libpq accepts"),
        ("user=%zz", "not a URL that libpq accepts"),
    ],
)
def test_a_parameter_that_cannot_be_translated_is_named_without_its_value(parameter: str, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}") as refused:
        PostgresUrl.parse(f"postgresql://ann:secret@one/name?{parameter}")
    assert "secret" not in str(refused.value)
    assert "unknown" not in str(refused.value)


@pytest.mark.parametrize("parameter", ["client_encoding=UTF8", "gssencmode=prefer", "channel_binding=prefer", ""])
def test_a_parameter_that_asks_for_what_the_driver_does_is_accepted(parameter: str) -> None:
    assert PostgresUrl.parse(f"postgresql://one?{parameter}").settings == {}


def test_a_url_is_shown_without_its_password() -> None:
    assert "secret" not in repr(PostgresUrl.parse("postgresql://ann:secret@one?sslpassword=secret"))


def test_variables_of_libpq_are_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGSSLMODE", "verify-full")
    monkeypatch.setenv("PGSSLROOTCERT", "system")
    monkeypatch.setenv("PGAPPNAME", "shop")
    monkeypatch.setenv("PGTARGETSESSIONATTRS", "primary")
    url = PostgresUrl.parse("postgresql://one?target_session_attrs=standby")
    assert (dict(url.tls), dict(url.settings), url.session) == (
        {"sslmode": "verify-full", "sslrootcert": "system"},
        {"application_name": "shop"},
        "standby",
    )


def test_a_variable_of_libpq_that_cannot_be_followed_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PGCHANNELBINDING", "require")
    with pytest.raises(ValueError, match="the parameter channel_binding supports only disable or prefer"):
        PostgresUrl.parse("postgresql://one")
