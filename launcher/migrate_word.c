/* SPDX-License-Identifier: Apache-2.0 */
/* What one word of a script is. */
#include <ctype.h>
#include <string.h>

#include "launcher/migrate_private.h"
#include "worker_sdk/base/str.h"

bool migrate_is(const struct migrate_work *work, struct shell_range word,
                const char *text)
{
    const char quote = work->text[word.start];
    const size_t length = strlen(text);

    if (word.end - word.start >= 2 && (quote == '"' || quote == '\'') &&
        work->text[word.end - 1] == quote) {
        word.start++;
        word.end--;
    }
    return word.end - word.start == length &&
           memcmp(work->text + word.start, text, length) == 0;
}

bool migrate_begins(const struct migrate_work *work, struct shell_range word,
                    const char *text)
{
    const size_t length = strlen(text);

    return word.end - word.start >= length &&
           memcmp(work->text + word.start, text, length) == 0;
}

bool migrate_has(const struct migrate_work *work, struct shell_range range,
                 const char *text)
{
    const size_t length = strlen(text);

    for (size_t at = range.start; at + length <= range.end; at++)
        if (memcmp(work->text + at, text, length) == 0)
            return true;
    return false;
}

size_t migrate_assigned(const struct migrate_work *work, struct shell_range word)
{
    const char *at = work->text + word.start;
    size_t length = 0;

    if (isdigit((unsigned char)*at))
        return 0;
    while (word.start + length < word.end &&
           (isalnum((unsigned char)at[length]) || at[length] == '_'))
        length++;
    return word.start + length < word.end && at[length] == '=' ? length : 0;
}

bool migrate_is_any(const struct migrate_work *work, struct shell_range word,
                    const char *names)
{
    size_t length;

    for (const char *name; (name = ct_next_field(&names, ' ', &length));)
        if (word.end - word.start == length &&
            memcmp(work->text + word.start, name, length) == 0)
            return true;
    return false;
}

bool migrate_is_dynamic(const struct migrate_work *work, struct shell_range word)
{
    return memchr(work->text + word.start, '$', word.end - word.start) ||
           memchr(work->text + word.start, '`', word.end - word.start);
}

bool migrate_ends(const struct migrate_work *work, struct shell_range word,
                  const char *tail)
{
    const size_t length = strlen(tail);
    const char last = work->text[word.end - 1];

    word.end -= last == '"' || last == '\'';
    return word.end - word.start >= length &&
           memcmp(work->text + word.end - length, tail, length) == 0;
}

bool migrate_is_option(const struct migrate_work *work, struct shell_range word)
{
    return work->text[word.start] == '-' && word.end - word.start > 1;
}

bool migrate_is_python(const struct migrate_work *work, struct shell_range word)
{
    const char *at = work->text + word.start;
    size_t length = word.end - word.start;

    for (size_t i = length; i > 0; i--)
        if (at[i - 1] == '/') {
            at += i;
            length -= i;
            break;
        }
    if (length > 0 && (at[length - 1] == '"' || at[length - 1] == '\''))
        length--;
    if (length > 0 && (*at == '"' || *at == '\'')) {
        at++;
        length--;
    }
    if (length < 6 || memcmp(at, "python", 6) != 0)
        return false;
    for (size_t i = 6; i < length; i++)
        if (!isdigit((unsigned char)at[i]) && at[i] != '.')
            return false;
    return true;
}

bool migrate_is_variable(const struct migrate_work *work, struct shell_range word)
{
    return migrate_is_dynamic(work, word) && !migrate_has(work, word, "(") &&
           !migrate_has(work, word, "`") && !migrate_has(work, word, "[");
}

void migrate_show(char *dst, size_t size, const struct migrate_work *work, size_t start,
                  size_t end)
{
    size_t n = 0;

    for (size_t i = start; i < end && n + 1 < size && n < MIGRATE_SHOWN; i++)
        dst[n++] = isspace((unsigned char)work->text[i]) || work->text[i] == '\\'
                       ? ' '
                       : work->text[i];
    dst[n] = '\0';
}
