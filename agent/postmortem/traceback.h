/* SPDX-License-Identifier: Apache-2.0 */
/* What a program says when it fails: Python's traceback, the stack that Python's faulthandler
 * writes on a fatal signal, what C++ and assert() say before they abort. The last such text in its output, however many lines follow it; and the exception and
 * the place in it. Pure. */
#pragma once

#include "worker_sdk/wire/message.h"

enum {
    TRACEBACK_MAX_BYTES = 4096 /* the end of a longer one is kept */
};

/* Copies the last one in data into dst[TRACEBACK_MAX_BYTES], without what stands in front of each
 * of its lines ("[rank0]: "). False when there is none, or more than `after_max` bytes follow; a
 * fatal signal ends the program whatever follows its stack. */
bool traceback_find(char *dst, const char *data, size_t length, size_t after_max);

/* Fills failure->exception and adds the fact "raised" from such a text; of a
 * Python traceback the innermost frame outside the libraries. `exception` is what is said
 * elsewhere; NULL: take it from the text. */
void traceback_explain(struct ct_failure *failure, const char *text,
                       const char *exception);

/* Where `words` stand in the text for the last time; NULL: nowhere. */
const char *traceback_find_last(const char *text, const char *words);

/* Whether a file of Python, as a frame names it up to a quotation mark or the end, is of a library:
 * Python's own or an installed one. */
bool traceback_is_library(const char *frame);
