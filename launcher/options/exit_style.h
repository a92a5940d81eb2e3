/* SPDX-License-Identifier: Apache-2.0 */
/* --exit-code: which exit code the launcher ends with when a worker has failed. */
#pragma once

enum exit_style {
    EXIT_STYLE_OWN,      /* the worker's own */
    EXIT_STYLE_TORCHRUN, /* always 1 */
    EXIT_STYLE_CLASS,    /* a code of ctrun's own for each kind of failure */
};

struct options;

/* What --exit-code asks for; parsed options have one of the three words. */
enum exit_style option_exit_style(const struct options *options);
