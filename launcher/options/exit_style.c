/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/exit_style.h"

#include <string.h>

#include "launcher/options/option.h"

enum exit_style option_exit_style(const struct options *options)
{
    const char *text = option_text(options, OPTION_EXIT_CODE);

    return strcmp(text, "torchrun") == 0 ? EXIT_STYLE_TORCHRUN
           : strcmp(text, "class") == 0  ? EXIT_STYLE_CLASS
                                         : EXIT_STYLE_OWN;
}
