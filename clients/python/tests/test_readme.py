"""The README's programs run, each by itself, and say something."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from servers import Dev

BLOCKS = re.findall(r"```python\n(.*?)```", (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8"), re.S)


@pytest.mark.parametrize("program", BLOCKS, ids=range(len(BLOCKS)))
def test_a_program_of_the_readme_runs(program: str, dev: Dev, tmp_path: Path) -> None:
    made = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], env={"MAINSPRING_SERVER": dev.url}, cwd=tmp_path, capture_output=True,
        text=True, timeout=60,
    )
    assert made.returncode == 0, made.stderr
    assert made.stdout or "webhooks" in program
