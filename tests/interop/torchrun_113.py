# SPDX-License-Identifier: Apache-2.0
"""torchrun 1.13 under Python 3.11 and later, which iterates no flag members of no or several bits:
its stream redirections would lack 0 and 3. Nothing else is changed."""
from torch.distributed.elastic.multiprocessing.api import Std

if Std.from_str("0") is None:
    whole = Std.from_str
    Std.from_str = classmethod(
        lambda cls, text: Std(int(text)) if text.isdigit() else whole(text))

from torch.distributed.run import main  # noqa: E402

main()
