/* SPDX-License-Identifier: Apache-2.0 */
/* --exit-code: whose code the launcher ends with when a worker has failed. */
#pragma once

enum exit_style {
    EXIT_STYLE_OWN,      /* the worker's own */
    EXIT_STYLE_TORCHRUN, /* 1, whatever it was */
    EXIT_STYLE_CLASS,    /* one of ctrun's, by kind of failure: no worker's code */
};

struct options;

/* What --exit-code asks for; parsed options have one of the three words. */
enum exit_style option_exit_style(const struct options *options);
