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


def test_without_the_laboratory_prove_says_in_one_line_where_to_get_it() -> None:
    prove = subprocess.run([sys.executable, "-c", _WITHOUT_LABORATORY], capture_output=True, text=True, check=False)
    assert prove.returncode == 1
    (line,) = prove.stderr.splitlines()
    assert "install shop-lab" in line
