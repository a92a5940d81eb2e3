/* SPDX-License-Identifier: Apache-2.0 */
/* "55d0c0a00000-55d0c0a01000 r-xp 00001000 fe:01 1234    /path": a line is read into a buffer on
 * the stack and kept when a frame is in it. A file with thousands of lines costs a few
 * milliseconds; the record gets no more than one line a frame. */
#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

#include "worker_sdk/client/crash.h"
#include "worker_sdk/wire/crash.h"

enum {
    /* a longer path is cut: the module is named, but its file is not found */
    LINE_MAX_BYTES = 512,
    READ_BYTES = 2048
};

struct line {
    char text[LINE_MAX_BYTES];
    size_t length;
};

/* Reads digits up to `end` and skips it; NULL when `end` does not follow. */
static const char *read_hex(const char *at, char end, uint64_t *out)
{
    *out = 0;
    for (; *at != end; at++) {
        const char c = *at;
        const unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                               : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                      : 16;

        if (digit == 16)
            return NULL;
        *out = *out << 4 | digit;
    }
    return at + 1;
}

static bool has_frame(const struct ct_crash *crash, uint64_t start, uint64_t end)
{
    for (uint32_t i = 0; i < crash->frame_count; i++)
        if (crash->frames[i] >= start && crash->frames[i] < end)
            return true;
    return false;
}

static void take_line(struct ct_crash *crash, struct line *line)
{
    const uint32_t used = crash->modules_length;
    const char *at;
    uint64_t start;
    uint64_t end;

    line->text[line->length] = '\0';
    if (!(at = read_hex(line->text, '-', &start)) || !(at = read_hex(at, ' ', &end)) ||
        strlen(at) < 4 || at[2] != 'x' || !has_frame(crash, start, end))
        return;
    if (line->length + 1 > sizeof crash->modules - used)
        return;
    memcpy(crash->modules + used, line->text, line->length);
    crash->modules[used + line->length] = '\n';
    crash->modules_length = used + (uint32_t)line->length + 1;
}

void ct_crash_find_modules(struct ct_crash *crash, int maps)
{
    struct line line = {.length = 0};
    char bytes[READ_BYTES];
    ssize_t n;

    while ((n = read(maps, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR))
        for (ssize_t i = 0; i < n; i++) {
            if (bytes[i] == '\n') {
                take_line(crash, &line);
                line.length = 0;
            } else if (line.length + 1 < sizeof line.text) {
                line.text[line.length++] = bytes[i];
            }
        }
}
