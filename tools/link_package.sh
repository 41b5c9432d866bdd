#!/bin/bash
# tools/link_package.sh FOLDER: lets .venv import the package that the build has put together in FOLDER.
set -euo pipefail
cd "$(dirname "$0")/.."
site_packages=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
realpath "$1" >"$site_packages/muster.pth"
