"""Start of the shim. Isolated Python has no folder of ours on its path; ours comes last and shadows nothing."""

import importlib
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))  # whatever the agent's process had open, a run gets none of it
    sys.path.append(str(Path(__file__).resolve().parents[3]))
    sys.exit(importlib.import_module("services.agent.shim.guard").main(sys.argv[1]))
