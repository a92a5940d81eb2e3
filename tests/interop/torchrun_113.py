# SPDX-License-Identifier: Apache-2.0
"""torchrun 1.13 under Python 3.11 and later, where a loop over a flag leaves out members of no bit
or of several: without this the stream redirections 0 and 3 would be missing. Nothing else is
changed."""
from torch.distributed.elastic.multiprocessing.api import Std

if Std.from_str("0") is None:
    whole = Std.from_str
    Std.from_str = classmethod(
        lambda cls, text: Std(int(text)) if text.isdigit() else whole(text))

from torch.distributed.run import main  # noqa: E402

main()
