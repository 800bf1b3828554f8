"""Runs the real supervisor over stand-ins: `python supervise.py DATA_DIR API_PORT [NAME=BEHAVIOUR …]`."""

import os
import sys
from pathlib import Path

from activity_core.dev.supervisor import DevOptions, run_dev

STAND_IN = Path(__file__).with_name("stand_in.py")


def main(arguments: list[str]) -> int:
    data_dir, api_port, *rest = arguments
    behaviours = dict(pair.split("=") for pair in rest)
    options = DevOptions(
        data_dir=Path(data_dir),
        api_port=int(api_port),
        temporal_port=int(os.environ.get("STAND_IN_TEMPORAL_PORT", "0")),
        temporal_ui_port=0,
        database_url=os.environ.get("ACTIVITY_CORE_DATABASE_URL"),
        temporal_address=os.environ.get("ACTIVITY_CORE_TEMPORAL_ADDRESS"),
    )

    def command_for(name: str) -> list[str]:
        return [sys.executable, str(STAND_IN), name, behaviours.get(name, "serve"), data_dir]

    return run_dev(options, command_for=command_for)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
