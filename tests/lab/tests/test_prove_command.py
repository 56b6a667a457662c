"""`shop prove` belongs to the laboratory, which a shop may lack."""

import subprocess
import sys

_WITHOUT_LABORATORY = """
import sys
from importlib import metadata
metadata.entry_points = lambda **_: ()
sys.argv = ["shop", "prove"]
from shop_cli.__main__ import main
main()
"""


def test_a_verdict_that_cannot_be_written_is_refused_before_the_orders() -> None:
    command = [sys.executable, "-m", "shop_cli", "prove", "--json", "/nowhere/verdict.json"]
    prove = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (prove.returncode, prove.stdout) == (2, "")
    assert prove.stderr.splitlines()[-1].startswith("Error: Invalid value for '--json'")


def test_without_the_laboratory_prove_says_in_one_line_where_to_get_it() -> None:
    prove = subprocess.run([sys.executable, "-c", _WITHOUT_LABORATORY], capture_output=True, text=True, check=False)
    assert prove.returncode == 1
    (line,) = prove.stderr.splitlines()
    assert "install shop-lab" in line
