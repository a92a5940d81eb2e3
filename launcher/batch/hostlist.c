/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/batch/hostlist.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/str.h"

enum {
    NAME_MAX_BYTES = 256,   /* a DNS name */
    NUMBER_MAX_DIGITS = 20, /* UINT64_MAX */
};

/* One item while it is expanded, and the name made so far. */
struct expansion {
    struct hostlist *list;
    const char *begin; /* of the item */
    const char *end;
    char name[NAME_MAX_BYTES];
};

int hostlist_add(struct hostlist *list, const char *name)
{
    size_t bytes = strlen(name) + 1;
    char **names;

    if (list->count == HOSTLIST_NAMES_MAX || bytes > HOSTLIST_BYTES_MAX - list->bytes)
        return -E2BIG;
    if ((list->count & (list->count - 1)) == 0) { /* full at each power of two */
        names = ct_realloc_array(list->names, list->count ? list->count * 2 : 1,
                                 sizeof *names);
        if (!names)
            return -ENOMEM;
        list->names = names;
    }
    if (!(list->names[list->count] = ct_strdup(name)))
        return -ENOMEM;
    list->count++;
    list->bytes += bytes;
    return 0;
}

/* Reads digits; returns the position after them, NULL when there are none or too many. */
static const char *read_number(const char *at, uint64_t *value, int *width)
{
    char digits[NUMBER_MAX_DIGITS + 1];
    size_t n = 0;

    while (isdigit((unsigned char)at[n]))
        n++;
    if (!n || n > NUMBER_MAX_DIGITS)
        return NULL;
    memcpy(digits, at, n);
    digits[n] = '\0';
    if (ct_parse_u64(digits, 0, UINT64_MAX, value) < 0)
        return NULL;
    *width = (int)n;
    return at + n;
}

static const char *skip_blanks(const char *at)
{
    while (*at == ' ' || *at == '\t')
        at++;
    return at;
}

/* "3" or "007-9"; returns the position after it, NULL when it is neither. */
static const char *read_range(const char *at, uint64_t *first, uint64_t *last,
                              int *width)
{
    int unused;

    if (!(at = read_number(at, first, width)))
        return NULL;
    *last = *first;
    if (*at != '-')
        return at;
    at = read_number(skip_blanks(at + 1), last, &unused);
    return at && *last >= *first ? at : NULL;
}

static int expand(struct expansion *it, const char *at, size_t length);

/* `at` is after '['. Expands each number of the ranges with the rest of the item. */
static int expand_ranges(struct expansion *it, const char *at, size_t length)
{
    const char *close = memchr(at, ']', (size_t)(it->end - at));
    uint64_t first;
    uint64_t last;
    int width;
    int rc;

    if (!close || close == at)
        return -EINVAL;
    while (at < close) {
        if (!(at = read_range(at, &first, &last, &width)))
            return -EINVAL;
        if (last - first >= HOSTLIST_NAMES_MAX)
            return -E2BIG;
        for (uint64_t i = first; i - first <= last - first; i++) {
            int written = ct_format(it->name + length, sizeof it->name - length,
                                    "%0*" PRIu64, width, i);

            if (written < 0)
                return -EINVAL;
            if ((rc = expand(it, close + 1, length + (size_t)written)) < 0)
                return rc;
            if (i == UINT64_MAX)
                break;
        }
        if (at < close && (*at != ',' || ++at == close))
            return -EINVAL;
    }
    return at == close ? 0 : -EINVAL;
}

/* `length` bytes of the name are made; `at` is the rest of the item. */
static int expand(struct expansion *it, const char *at, size_t length)
{
    const char *bracket = memchr(at, '[', (size_t)(it->end - at));
    size_t prefix = (size_t)((bracket ? bracket : it->end) - at);

    if (prefix >= sizeof it->name - length)
        return -EINVAL;
    memcpy(it->name + length, at, prefix);
    it->name[length + prefix] = '\0';
    if (bracket)
        return expand_ranges(it, bracket + 1, length + prefix);
    if (prefix && at > it->begin)
        return -EINVAL; /* a suffix after a bracket is not in Slurm's grammar */
    return hostlist_add(it->list, it->name);
}

/* The end of the item at `at`: a comma or blank outside brackets. NULL: unbalanced. */
static const char *item_end(const char *at)
{
    bool inside = false;

    for (; *at; at++) {
        if (*at == '[' || *at == ']') {
            if (inside == (*at == '['))
                return NULL;
            inside = !inside;
        } else if (!inside && (*at == ',' || isspace((unsigned char)*at))) {
            break;
        }
    }
    return inside ? NULL : at;
}

int hostlist_parse(const char *text, struct hostlist *out, struct ctrun_error *err)
{
    struct expansion it = {.list = out};
    const char *at = text;
    int rc = 0;

    *out = (struct hostlist){0};
    while (rc == 0 && *(at += strspn(at, ", \t\n"))) {
        it.begin = at;
        it.end = item_end(at);
        rc = it.end ? expand(&it, at, 0) : -EINVAL;
        at = it.end;
    }
    if (rc < 0) {
        hostlist_deinit(out);
        return ct_fail(err, rc, "host list '%.80s': %s", text,
                       rc == -E2BIG    ? "more than 65536 hosts"
                       : rc == -EINVAL ? "not of the form name or prefix[1-3,5]"
                                       : "out of memory");
    }
    return 0;
}

void hostlist_deinit(struct hostlist *list)
{
    for (size_t i = 0; i < list->count; i++)
        free(list->names[i]);
    free(list->names);
    *list = (struct hostlist){0};
}

/* A name cut in front of its last digits. */
struct numbered {
    size_t prefix;
    int width; /* 0: it does not end in digits */
    uint64_t number;
};

static struct numbered cut(const char *name)
{
    size_t length = strlen(name);
    struct numbered out = {.prefix = length};

    while (out.prefix && isdigit((unsigned char)name[out.prefix - 1]))
        out.prefix--;
    if (length - out.prefix > 18 ||
        !read_number(name + out.prefix, &out.number, &out.width))
        out = (struct numbered){.prefix = length};
    return out;
}

/* True when b follows a in a range that begins with a's width: 09-10, 9-10, but not 09-010. */
static bool continues(struct numbered a, struct numbered b)
{
    char next[NUMBER_MAX_DIGITS + 2];

    return b.number == a.number + 1 &&
           ct_format(next, sizeof next, "%0*" PRIu64, a.width, b.number) == b.width;
}

/* One past the names that share name `from`'s prefix and end in digits. */
static size_t group_end(const struct hostlist *list, size_t from, struct numbered head)
{
    size_t end = from + 1;

    while (end < list->count && head.width) {
        struct numbered next = cut(list->names[end]);

        if (!next.width || next.prefix != head.prefix ||
            memcmp(list->names[end], list->names[from], head.prefix) != 0)
            break;
        end++;
    }
    return end;
}

static void format_group(FILE *out, const struct hostlist *list, size_t from,
                         size_t end, size_t prefix)
{
    (void)fprintf(out, "%.*s[", (int)prefix, list->names[from]);
    for (size_t i = from; i < end;) {
        size_t last = i;

        while (last + 1 < end &&
               continues(cut(list->names[last]), cut(list->names[last + 1])))
            last++;
        (void)fprintf(out, "%s%s", i > from ? "," : "", list->names[i] + prefix);
        if (last > i)
            (void)fprintf(out, "-%s", list->names[last] + prefix);
        i = last + 1;
    }
    (void)fputc(']', out);
}

char *hostlist_format(const struct hostlist *list, char *dst, size_t size)
{
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);

    dst[0] = '\0';
    if (!out)
        return dst;
    for (size_t i = 0; i < list->count;) {
        struct numbered head = cut(list->names[i]);
        size_t end = group_end(list, i, head);

        if (i)
            (void)fputc(',', out);
        if (end - i > 1)
            format_group(out, list, i, end, head.prefix);
        else
            (void)fputs(list->names[i], out);
        i = end;
    }
    (void)fclose(out);
    if (text && ct_copy(dst, size, text) < 0 && size > 3)
        memcpy(dst + size - 4, "...", 4);
    free(text);
    return dst;
}
