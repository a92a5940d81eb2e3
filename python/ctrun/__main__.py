# SPDX-License-Identifier: Apache-2.0
"""python -m ctrun: ctrun(1), whose workers run under this Python."""
import os
import shutil
import sys
import sysconfig

here = os.path.join(sysconfig.get_path("scripts"), "ctrun")
program = here if os.access(here, os.X_OK) else shutil.which("ctrun")
if program is None:
    print(f"ctrun: error[E_EXEC]: there is no {here}, and no program ctrun in PATH: install ctrun", file=sys.stderr)
    sys.exit(127)
os.environ.setdefault("PYTHON_EXEC", sys.executable)
os.execv(program, ["ctrun", *sys.argv[1:]])
