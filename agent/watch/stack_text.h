/* SPDX-License-Identifier: Apache-2.0 */
/* What the C frames in the text of live_stack_write() say about the first thread of a rank: a rank that waits for
 * others in Work.wait() has a line of the script as its innermost Python frame. Pure. */
#pragma once

#include <stddef.h>

enum stack_text {
    STACK_TEXT_UNKNOWN, /* the text has no C frame of that thread, or it waits for a GPU */
    STACK_TEXT_WAITS, /* in a library in which ranks wait for others */
    STACK_TEXT_FREE   /* in none of these */
};

/* `text` may be of several ranks. */
enum stack_text stack_text_judge(const char *text, size_t length, int rank);
