/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/template.h"

#include <ctype.h>

#include "worker_sdk/base/alloc.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/base/str.h"

enum {
    TEMPLATE_MAX_BYTES = 4 << 20
}; /* above what exec() takes as one argument */

static size_t identifier_length(const char *text)
{
    size_t length = 0;

    while (isascii(text[length]) &&
           (isalpha((unsigned char)text[length]) || text[length] == '_' ||
            (length && isdigit((unsigned char)text[length]))))
        length++;
    return length;
}

static const char *find(const struct template_name *names, const char *name,
                        size_t length)
{
    for (; names->name; names++)
        if (strncmp(names->name, name, length) == 0 && !names->name[length])
            return names->value;
    return NULL;
}

/* Appends the replacement of what `text` begins with, a '$'; returns how many bytes of `text` it
 * read. */
static size_t substitute_one(struct ct_buf *out, const char *text,
                             const struct template_name *names, int *rc)
{
    bool braced = text[1] == '{';
    const char *name = text + 1 + braced;
    size_t length = identifier_length(name);
    size_t used = 1 + length + (braced ? 2u : 0u);
    const char *value;

    if (text[1] == '$') {
        *rc = ct_buf_append(out, "$", 1);
        return 2;
    }
    if (!length || (braced && name[length] != '}')) {
        *rc = ct_buf_append(out, text, 1);
        return 1;
    }
    value = find(names, name, length);
    *rc = value ? ct_buf_append(out, value, strlen(value))
                : ct_buf_append(out, text, used);
    return used;
}

char *template_substitute(const char *text, const struct template_name *names)
{
    struct ct_buf out;
    char *result;
    int rc = 0;

    ct_buf_init(&out, TEMPLATE_MAX_BYTES);
    while (*text && rc == 0) {
        size_t plain = strcspn(text, "$");

        rc = ct_buf_append(&out, text, plain);
        text += plain;
        if (*text && rc == 0)
            text += substitute_one(&out, text, names, &rc);
    }
    result = rc == 0 ? ct_strndup((const char *)ct_buf_data(&out), ct_buf_length(&out))
                     : NULL;
    ct_buf_deinit(&out);
    return result;
}
