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
        timeout=60,
    )
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_installs_three_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.split("/")[0] for name in wheel.namelist()}
    (info,) = {top for top in tops if top.endswith(".dist-info")}
    assert tops - {info} == {"seedrl", "envs_server", "learner"}


def test_the_wheel_holds_every_module(wheel: zipfile.ZipFile) -> None:
    expected = {
        str(path.relative_to(ROOT))
        for package in ("seedrl", "envs_server", "learner")
        for path in (ROOT / package).rglob("*.py")
    }
    configs = {f"seedrl/{path.relative_to(ROOT)}" for path in (ROOT / "configs").glob("*.py")}
    assert configs, "no bundled configs in the checkout"
    assert {name for name in wheel.namelist() if name.endswith(".py")} == expected | configs


@pytest.mark.parametrize(
    "name",
    [
        "seedrl/py.typed",
        "seedrl/wire/seedrl.proto",
        "seedrl/wire/seedrl_pb2.pyi",
        "seedrl/configs/cartpole_r2d2.py",
        "learner/extras/watch/page/index.html",
        "learner/extras/watch/page/watch.js",
        "learner/extras/watch/page/watch.css",
        "learner/extras/watch/page/uplot.js",
        "learner/extras/watch/page/uplot.css",
        "learner/extras/watch/page/uplot.LICENSE",
    ],
)
def test_the_wheel_holds_what_is_not_a_module(wheel: zipfile.ZipFile, name: str) -> None:
    assert name in wheel.namelist()


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


@pytest.mark.parametrize("extra", ["cuda12", "cuda13", "tpu"])
def test_an_accelerator_is_a_learner_with_its_jax(extra: str) -> None:
    found = requirements(extra)
    assert set(found) == {"seedrl", "jax"}
    assert found["seedrl"].extras == {"learner"}
    assert found["jax"].extras == {extra}
    assert found["jax"].specifier == requirements("learner")["jax"].specifier


def floor(requirement: Requirement) -> Version:
    (lowest,) = [Version(spec.version) for spec in requirement.specifier if spec.operator == ">="]
    return lowest


def test_the_protobuf_floor_runs_the_checked_in_stubs() -> None:
    text = (ROOT / "seedrl/wire/seedrl_pb2.py").read_text()
    call = re.search(r"ValidateProtobufRuntimeVersion\(([^)]*)\)", text)
    assert call, "seedrl_pb2.py states no runtime version"
    generated = Version(".".join(re.findall(r"\b\d+\b", call[1])))
    assert floor(requirements()["protobuf"]) >= generated


def test_the_grpcio_floor_runs_the_checked_in_stubs() -> None:
    text = (ROOT / "seedrl/wire/seedrl_pb2_grpc.py").read_text()
    stated = re.search(r"GRPC_GENERATED_VERSION = '([\d.]+)'", text)
    assert stated, "seedrl_pb2_grpc.py states no grpcio version"
    assert floor(requirements()["grpcio"]) >= Version(stated[1])


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


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_the_lock_satisfies_every_requirement_on_each_python(python: str) -> None:
    pins = locked(python)
    for extra in ("", "learner", "atari", "certificates", "watch", "video", "dev"):
        for name, requirement in requirements(extra).items():
            key = re.sub(r"[-_.]+", "-", name).lower()
            assert key in pins, f"{name} is not locked; run `make lock`"
            assert requirement.specifier.contains(pins[key]), f"{name}: run `make lock`"


def test_the_lock_holds_nothing_for_a_gpu_nor_what_we_decided_against() -> None:
    names = set(locked("3.11")) | set(locked("3.12"))
    unwanted = re.compile(r"nvidia|cuda|libtpu|rlax|distrax|flashbax|dm-haiku|tensorflow")
    assert {name for name in names if unwanted.search(name)} == set()


def test_every_line_of_the_lock_is_hashed_and_says_no_origin() -> None:
    for entry in re.split(r"\n(?=\S)", LOCK.strip()):
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]
    assert re.findall(r"^\s*#|://|^-", LOCK, re.MULTILINE) == []


@pytest.mark.parametrize("name", ["Dockerfile.learner", "Dockerfile.envs"])
def test_images_run_one_command_without_root_or_shell(name: str) -> None:
    last_stage = (ROOT / name).read_text().rpartition("\nFROM ")[2]
    (entry,) = re.findall(r'^ENTRYPOINT \["([\w-]+)"\]$', last_stage, re.MULTILINE)
    assert entry in PROJECT["scripts"]
    (user,) = re.findall(r"^USER (\d+):\d+$", last_stage, re.MULTILINE)
    assert int(user) > 0
