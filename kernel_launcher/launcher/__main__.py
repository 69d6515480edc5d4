"""``python -m kernel_launcher.launcher RUN_DIR``: the detached process of one job."""

import sys
from pathlib import Path

from kernel_launcher.launcher.supervisor import supervise
from kernel_launcher.protocol.paths import RunDir

sys.exit(supervise(RunDir(Path(sys.argv[1]))))
