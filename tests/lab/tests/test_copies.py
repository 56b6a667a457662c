from pathlib import Path

from shop_lab.mutants.copies import copy_repository


def test_the_services_of_a_run_of_prove_have_the_code_of_the_copy(tmp_path: Path) -> None:
    copy = copy_repository(tmp_path / "copy")
    marker = tmp_path / "started"
    main = copy.folder / "services/currency/src/currency_service/__main__.py"
    main.write_text(f"open({str(marker)!r}, 'w').close()\nraise SystemExit(1)\n")
    assert copy.run("-m", "shop_cli", "prove", "--orders", "1") != 0
    assert marker.exists()
