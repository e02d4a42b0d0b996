"""A tool loop in a process of its own: `loop_program.py URL LOG TOOL [LEASE]`, TOOL as in the scenario file."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

from mainspring import Client, types


def main(url: str, log: str, described: str, lease: str = "30") -> None:
    told: dict[str, Any] = json.loads(described)
    client = Client(url)

    @client.tool(repeat=told["repeat"], name=told["name"])
    def tool(call: types.CallToMake, invoice: Any = None, order: Any = None) -> Any:
        """What the scenario says."""
        with open(log, "a") as file:
            file.write(call.call_id + "\n")
        if told.get("dies"):
            os.kill(os.getpid(), signal.SIGKILL)
        if "error" in told:
            raise RuntimeError(told["error"])
        return told["result"]

    client.serve(tool, lease=float(lease)).run_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
