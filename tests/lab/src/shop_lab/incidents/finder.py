"""Prefers the modules beside this file, `package.module.py`. Python imports it as `sitecustomize`, before a program."""

import importlib.util
import pathlib
import sys
from importlib.machinery import ModuleSpec


class Finder:
    """Finds modules by their full names."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        file = pathlib.Path(__file__).with_name(f"{name}.py")
        return importlib.util.spec_from_file_location(name, file) if file.exists() else None


sys.meta_path.insert(0, Finder)
