/* SPDX-License-Identifier: Apache-2.0 */
/* Error texts of a program that fails: Python's traceback, the stack that Python's faulthandler
 * writes on a fatal signal, the messages of C++ and assert() before they abort. Finds the last
 * such text in the output, and the exception and the place in that text. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

enum {
    TRACEBACK_MAX_BYTES = 4096 /* of a longer one the end is kept */
};

/* Copies the last such text in data into dst[TRACEBACK_MAX_BYTES], without the prefix of each
 * line ("[rank0]: "). False when there is none, or more than `after_max` bytes follow; for a
 * fatal signal there is no such limit: it ends the program. What C++ or assert() wrote before such an
 * abort is the reason for it: it follows faulthandler's stack in dst. */
bool traceback_find(char *dst, const char *data, size_t length, size_t after_max);
/* The length of the data without the stacks and the list of modules that faulthandler wrote at its
 * end, below "Fatal Python error: ". */
size_t traceback_cut_dump(const char *data, size_t length);

/* Fills failure->exception and adds the fact "raised" from such a text; for a Python traceback,
 * the fact names the innermost frame outside the libraries. `exception` is its text if known
 * from elsewhere; NULL: take it from `text`. */
void traceback_explain(struct ct_failure *failure, const char *text,
                       const char *exception);

/* The last occurrence of `words` in the text; NULL: none. */
const char *traceback_find_last(const char *text, const char *words);

/* Whether a Python file belongs to a library: Python's own or an installed one. `frame` is the
 * file name, up to a quotation mark or the end. */
bool traceback_is_library(const char *frame);
