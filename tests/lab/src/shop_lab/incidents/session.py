"""`python -m shop_lab.incidents.session URL TOKEN STATEMENT...`: run statements in one session; a number is a pause."""

import sys

import psycopg


def main(url: str, token: str, *statements: str) -> None:
    with psycopg.connect(url, autocommit=True, application_name=token) as connection:
        for statement in statements:
            connection.execute((f"SELECT pg_sleep({statement})" if statement.isdecimal() else statement).encode())


if __name__ == "__main__":
    main(*sys.argv[1:])
