"""The wheel, the floors of the dependencies, the lock, and what each extra brings."""

import ast
import re
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from tests.patience import SECONDS

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
LOCK = (ROOT / "requirements.lock").read_text()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The built wheel. hatchling is called as it is installed: nothing is fetched."""
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        check=True,
        capture_output=True,
        timeout=SECONDS,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_holds_three_packages_and_every_module_of_them(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {
        *("seedrl", "envs_server", "learner")
    }
    expected = {
        str(path.relative_to(ROOT))
        for package in ("seedrl", "envs_server", "learner")
        for path in (ROOT / package).rglob("*.py")
    }
    configs = {f"seedrl/{path.relative_to(ROOT)}" for path in (ROOT / "configs").glob("*.py")}
    assert configs, "no bundled configs in the checkout"
    assert {name for name in wheel.namelist() if name.endswith(".py")} == expected | configs


def test_the_wheel_holds_what_is_not_a_module(wheel: zipfile.ZipFile) -> None:
    page = [f"uplot.{suffix}" for suffix in ("js", "css", "LICENSE")]
    page += ["index.html", "watch.js", "watch.css"]
    assert set(wheel.namelist()) >= {
        *(f"seedrl/{name}" for name in ("py.typed", "wire/seedrl.proto", "wire/seedrl_pb2.pyi")),
        *(f"learner/extras/watch/page/{name}" for name in page),
    }


def test_console_scripts_name_existing_functions(wheel: zipfile.ZipFile) -> None:
    (name,) = [name for name in wheel.namelist() if name.endswith(".dist-info/entry_points.txt")]
    parser = ConfigParser()
    parser.read_string(wheel.read(name).decode())
    scripts = dict(parser["console_scripts"])
    assert set(scripts) == {"seedrl", "seedrl-learner", "seedrl-env-server"}
    for target in scripts.values():
        module, _, function = target.partition(":")
        tree = ast.parse(wheel.read(f"{module.replace('.', '/')}.py"))
        defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert function in defined, f"{target} is not there"


def requirements(extra: str = "") -> dict[str, Requirement]:
    """Requirements of an extra, or of the base, by the name of what they require."""
    source = PROJECT["optional-dependencies"][extra] if extra else PROJECT["dependencies"]
    return {Requirement(line).name: Requirement(line) for line in source}


def floor(requirement: Requirement) -> Version:
    (lowest,) = [Version(spec.version) for spec in requirement.specifier if spec.operator == ">="]
    return lowest


@pytest.mark.parametrize(
    ("name", "file", "stated"),
    [
        ("protobuf", "seedrl_pb2.py", r"ValidateProtobufRuntimeVersion\(([^)]*)\)"),
        ("grpcio", "seedrl_pb2_grpc.py", r"GRPC_GENERATED_VERSION = '([\d.]+)'"),
    ],
)
def test_the_floors_run_the_checked_in_stubs(name: str, file: str, stated: str) -> None:
    found = re.search(stated, (ROOT / "seedrl" / "wire" / file).read_text())
    assert found, f"{file} states no version"
    generated = Version(".".join(re.findall(r"\b\d+\b", found[1])))
    assert floor(requirements()[name]) >= generated


def locked(python: str) -> dict[str, Version]:
    """Versions that the lock installs on Linux with one Python."""
    environment = {
        "python_full_version": f"{python}.0",
        "python_version": python,
        "sys_platform": "linux",
        "platform_python_implementation": "CPython",
    }
    found: dict[str, Version] = {}
    for line in re.findall(r"^([a-z0-9].*?) \\$", LOCK, re.MULTILINE):
        requirement = Requirement(line)
        if requirement.marker is None or requirement.marker.evaluate(environment):
            (pin,) = requirement.specifier
            assert pin.operator == "=="
            assert requirement.name not in found, f"{requirement.name} twice on Python {python}"
            found[requirement.name] = Version(pin.version)
    return found


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13", "3.14"])
def test_the_lock_satisfies_every_requirement_on_each_python(python: str) -> None:
    pins = locked(python)
    for extra in ("", "learner", "atari", "certificates", "watch", "video", "dev"):
        for name, requirement in requirements(extra).items():
            if requirement.marker and not requirement.marker.evaluate({"python_version": python}):
                continue
            key = re.sub(r"[-_.]+", "-", name).lower()
            assert key in pins, f"{name} is not locked; run `make lock`"
            assert requirement.specifier.contains(pins[key]), f"{name}: run `make lock`"
