/* SPDX-License-Identifier: Apache-2.0 */
/* The Itanium C++ ABI, section 5.1, as far as names with scopes need it. */
#include "agent/native/cpp_name.h"

#include "worker_sdk/base/str.h"

enum {
    DEPTH_MAX = 64 /* of arguments inside arguments */
};

struct name {
    const char *at;
    char *dst;
    size_t size, length;
    const char *last; /* the last part, for constructors; last_length */
    size_t last_length;
};

static void append(struct name *name, const char *text, size_t length)
{
    if (length > name->size - 1 - name->length)
        length = name->size - 1 - name->length;
    memcpy(name->dst + name->length, text, length);
    name->length += length;
    name->dst[name->length] = '\0';
}

static void append_part(struct name *name, const char *before, const char *text,
                        size_t length)
{
    if (name->length > 0)
        append(name, "::", 2);
    append(name, before, strlen(before));
    append(name, text, length);
    name->last = text;
    name->last_length = length;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

/* "9allreduce": the part behind its length; NULL if the part is not complete. */
static const char *take_source(const char **at, size_t *length)
{
    const char *text;

    *length = 0;
    while (is_digit(**at) && *length < 4096)
        *length = *length * 10 + (size_t)(*(*at)++ - '0');
    text = *at;
    if (*length == 0 || strnlen(text, *length) < *length)
        return NULL;
    *at += *length;
    return text;
}

/* Returns the place behind the 'E' that ends the arguments; NULL: not understood. Handles only what
 * nests, and what may contain an 'E' that ends nothing. */
static const char *skip_arguments(const char *at)
{
    int depth = 1;
    size_t length;

    while (depth > 0 && depth < DEPTH_MAX) {
        if (is_digit(*at)) {
            if (!take_source(&at, &length))
                return NULL;
        } else if (*at == 'S' || *at == 'T') { /* seen before: S_, S0_, St, T_, T0_ */
            at++;
            while (is_digit(*at) || (*at >= 'A' && *at <= 'Z'))
                at++;
            if (*at == '\0')
                return NULL;
            at++;
        } else if (*at == 'L') { /* a value: its digits are not a length */
            at += strcspn(at, "E_");
            if (*at++ != 'E')
                return NULL;
        } else if (*at == 'X' || *at == '\0') /* an expression */
            return NULL;
        else {
            depth += *at == 'N' || *at == 'I' || *at == 'J' || *at == 'F';
            depth -= *at == 'E';
            at++;
        }
    }
    return depth == 0 ? at : NULL;
}

/* One part of a scope; false: not understood. */
static bool take_part(struct name *name)
{
    const char *text;
    size_t length;

    if (*name->at == 'L') /* of this file only */
        name->at++;
    if (is_digit(*name->at)) {
        if (!(text = take_source(&name->at, &length)))
            return false;
        if (length >= 10 && ct_starts_with(text, "_GLOBAL__N"))
            append_part(name, "", "(anonymous)", 11);
        else
            append_part(name, "", text, length);
    } else if (*name->at == 'S' && name->at[1] == 't') {
        append_part(name, "", "std", 3);
        name->at += 2;
    } else if ((*name->at == 'C' || *name->at == 'D') && is_digit(name->at[1]) &&
               name->last) {
        append_part(name, *name->at == 'D' ? "~" : "", name->last, name->last_length);
        name->at += 2;
    } else if (*name->at == 'I' && name->length > 0) {
        append(name, "<...>", 5);
        if (!(text = skip_arguments(name->at + 1)))
            return false;
        name->at = text;
    } else
        return false;
    return true;
}

/* N ... E, or one part alone, perhaps with std. */
static bool take_scope(struct name *name)
{
    if (*name->at != 'N') {
        const bool is_std = ct_starts_with(name->at, "St");

        return take_part(name) && (!is_std || take_part(name)) &&
               (*name->at != 'I' || take_part(name));
    }
    name->at++;
    name->at += strspn(name->at, "rVKRO");
    while (*name->at != 'E')
        if (!take_part(name))
            return false;
    name->at++;
    return true;
}

void cpp_name_format(char *dst, size_t size, const char *text)
{
    struct name name = {.at = text + 2, .dst = dst, .size = size};
    bool is_inside;

    if (!ct_starts_with(text, "_Z")) {
        (void)ct_copy(dst, size, text);
        return;
    }
    dst[0] = '\0';
    is_inside = *name.at == 'Z'; /* something inside this function, such as a lambda */
    name.at += strspn(name.at, "Z");
    if ((!take_scope(&name) || is_inside) && name.length > 0)
        append(&name, "...", 3);
    if (name.length == 0)
        (void)ct_copy(dst, size, text);
}
