"""Singer: the tap piped into the target, both on the core that is measured.

Nothing but the two processes and their configuration is here.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main(url: str, folder: Path) -> int:
    config = folder / "singer.json"
    config.write_text(json.dumps({"url": url, "folder": str(folder)}), encoding="utf-8")
    tap, target = ([sys.executable, str(HERE / name), "--config", str(config)] for name in ("singer_tap.py", "singer_target.py"))
    with (
        subprocess.Popen(tap, stdout=subprocess.PIPE) as source,
        subprocess.Popen(target, stdin=source.stdout, stdout=subprocess.DEVNULL) as sink,
    ):
        assert source.stdout is not None
        source.stdout.close()
        return max(sink.wait(), source.wait())


if __name__ == "__main__":
    raise SystemExit(2 if main(sys.argv[1], Path(sys.argv[2])) else 0)
