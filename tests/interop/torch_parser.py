# SPDX-License-Identifier: Apache-2.0
"""Prints torchrun's own argument parser as JSON: its options, and what each beginning of a name
means to it (the option, or null for more than one)."""
import json

from torch.distributed.run import get_args_parser

parser = get_args_parser()
options, prefixes = [], {}
for action in parser._actions:
    names = [name for name in action.option_strings if name.startswith("--")]
    if not names or names == ["--help"]:
        continue
    default = action.default
    options.append({"names": names, "letters": [n for n in action.option_strings if n not in names],
                    "is_flag": action.nargs == 0, "dest": action.dest,
                    "default": default if isinstance(default, (str, int, float)) else None,
                    "choices": action.choices and list(action.choices),
                    "type": getattr(action.type, "__name__", None)})
    for name in names:
        for length in range(3, len(name) + 1):
            prefix = name[:length]
            exact = parser._option_string_actions.get(prefix)
            means = [exact] if exact else [each[0] for each in parser._get_option_tuples(prefix)]
            prefixes[prefix] = means[0].dest if len(means) == 1 else None
print(json.dumps({"options": options, "prefixes": prefixes}))
