/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/str.h"

#include <ctype.h>
#include <errno.h>

__attribute__((format(printf, 3, 0))) static int format(char *dst, size_t size,
                                                        const char *fmt, va_list args)
{
    const int length = vsnprintf(dst, size, fmt, args);

    return length < 0 || (size_t)length >= size ? -ENAMETOOLONG : length;
}

int ct_format(char *dst, size_t size, const char *fmt, ...)
{
    va_list args;
    int length;

    va_start(args, fmt);
    length = format(dst, size, fmt, args);
    va_end(args);
    return length;
}

__attribute__((format(printf, 3, 0))) static int append(char *dst, size_t size,
                                                        const char *fmt, va_list args)
{
    const size_t used = strlen(dst);
    const int length = format(dst + used, size - used, fmt, args);

    return length < 0 ? length : (int)used + length;
}

int ct_append(char *dst, size_t size, const char *fmt, ...)
{
    va_list args;
    int length;

    va_start(args, fmt);
    length = append(dst, size, fmt, args);
    va_end(args);
    return length;
}

int ct_append_item(char *dst, size_t size, const char *separator, const char *fmt, ...)
{
    va_list args;
    int length;

    if (*dst)
        (void)ct_append(dst, size, "%s",
                        separator); /* else the item does not fit, either */
    va_start(args, fmt);
    length = append(dst, size, fmt, args);
    va_end(args);
    return length;
}

int ct_copy(char *dst, size_t size, const char *text)
{
    size_t length = strnlen(text, size);

    if (length == size) {
        memcpy(dst, text, size - 1);
        dst[size - 1] = '\0';
        return -ENAMETOOLONG;
    }
    memcpy(dst, text, length + 1);
    return 0;
}

int ct_parse_u64(const char *text, uint64_t min, uint64_t max, uint64_t *out)
{
    unsigned long long value;
    char *end;

    if (!isdigit((unsigned char)*text))
        return -EINVAL;
    errno = 0;
    value = strtoull(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno || value < min || value > max)
        return -ERANGE;
    *out = value;
    return 0;
}

int ct_parse_i64(const char *text, int64_t min, int64_t max, int64_t *out)
{
    const char *digits = *text == '-' || *text == '+' ? text + 1 : text;
    long long value;
    char *end;

    if (!isdigit((unsigned char)*digits))
        return -EINVAL;
    errno = 0;
    value = strtoll(text, &end, 10);
    if (*end)
        return -EINVAL;
    if (errno || value < min || value > max)
        return -ERANGE;
    *out = value;
    return 0;
}

bool ct_starts_with(const char *text, const char *prefix)
{
    return strncmp(text, prefix, strlen(prefix)) == 0;
}

const char *ct_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');

    return slash ? slash + 1 : path;
}

const char *ct_trim(const char *text, size_t *length)
{
    while (*length && isspace((unsigned char)*text)) {
        text++;
        --*length;
    }
    while (*length && isspace((unsigned char)text[*length - 1]))
        --*length;
    return text;
}

int ct_parse_python_int(const char *text, int64_t *out)
{
    char digits[24];
    size_t length = strlen(text);
    size_t n = 0;

    text = ct_trim(text, &length);
    for (size_t i = 0; i < length; i++) {
        if (text[i] == '_' && i > 0 && isdigit((unsigned char)text[i - 1]) &&
            isdigit((unsigned char)text[i + 1]))
            continue;
        if (n == sizeof digits - 1)
            return -ERANGE;
        digits[n++] = text[i];
    }
    digits[n] = '\0';
    return ct_parse_i64(digits, INT64_MIN, INT64_MAX, out);
}

const char *ct_next_field(const char **cursor, char separator, size_t *length)
{
    const char *field = *cursor;
    const char *end;

    if (!field)
        return NULL;
    end = strchr(field, separator);
    *length = end ? (size_t)(end - field) : strlen(field);
    *cursor = end ? end + 1 : NULL;
    return field;
}
