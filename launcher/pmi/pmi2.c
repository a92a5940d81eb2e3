/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/pmi/pmi2.h"

#include <errno.h>

#include "worker_sdk/base/str.h"

const char pmi2_init_line[] = "cmd=init pmi_version=2 pmi_subversion=0\n";

/* A word of a line, "KEY=VALUE" between blanks. */
static bool has_word(const char *line, const char *word)
{
    const char *cursor = line;
    const char *field;
    size_t length;

    while ((field = ct_next_field(&cursor, ' ', &length)))
        if (length == strlen(word) && memcmp(field, word, length) == 0)
            return true;
    return false;
}

int pmi2_check_init(const char *line)
{
    return ct_starts_with(line, "cmd=response_to_init ") && has_word(line, "rc=0") &&
                   has_word(line, "pmi_version=2")
               ? 0
               : -EPROTO;
}

static bool is_clean(const char *text, const char *forbidden)
{
    return !text[strcspn(text, forbidden)];
}

int pmi2_format(char *dst, size_t size, const char *name,
                const struct pmi2_field *fields, size_t count)
{
    char body[PMI2_BODY_MAX];
    int used = ct_format(body, sizeof body, "cmd=%s;", name);

    if (!is_clean(name, ";=\n"))
        return -EINVAL;
    for (size_t i = 0; used >= 0 && i < count; i++) {
        if (!*fields[i].key || !is_clean(fields[i].key, ";=\n") ||
            !is_clean(fields[i].value, ";\n"))
            return -EINVAL;
        used = ct_append(body, sizeof body, "%s=%s;", fields[i].key, fields[i].value);
    }
    return used < 0 ? used : ct_format(dst, size, "%6d%s", used, body);
}

int pmi2_parse_length(const char text[PMI2_LENGTH_BYTES])
{
    char copy[PMI2_LENGTH_BYTES + 1] = "";
    size_t length = PMI2_LENGTH_BYTES;
    const char *begin;
    uint64_t value;

    memcpy(copy, text, PMI2_LENGTH_BYTES);
    begin = ct_trim(copy, &length); /* some pad on the left, some on the right */
    copy[(size_t)(begin - copy) + length] = '\0';
    return memchr(text, '\0', PMI2_LENGTH_BYTES) ||
                   ct_parse_u64(begin, 1, PMI2_BODY_MAX, &value) < 0
               ? -EPROTO
               : (int)value;
}

int pmi2_parse(struct pmi2_answer *out, char *body, size_t length)
{
    char *const end = body + length;

    out->count = 0;
    if (length == 0 || end[-1] != ';' || memchr(body, '\0', length))
        return -EPROTO;
    *end = '\0';
    for (char *at = body; at < end;) {
        char *stop = strchr(at, ';'); /* found: the last byte is ';' */
        char *equals;

        *stop = '\0';
        if (!(equals = strchr(at, '=')) || equals == at)
            return -EPROTO;
        *equals = '\0';
        if (out->count < PMI2_FIELDS_MAX) /* further fields are not used */
            out->fields[out->count++] = (struct pmi2_field){at, equals + 1};
        at = stop + 1;
    }
    return 0;
}

const char *pmi2_find(const struct pmi2_answer *answer, const char *key)
{
    for (size_t i = 0; i < answer->count; i++)
        if (strcmp(answer->fields[i].key, key) == 0)
            return answer->fields[i].value;
    return NULL;
}

int pmi2_check(const struct pmi2_answer *answer, const char *name)
{
    static const char tail[] = "-response";
    const char *found = pmi2_find(answer, "cmd");
    const char *rc = pmi2_find(answer, "rc");
    const size_t length = strlen(name);

    return found && rc && strncmp(found, name, length) == 0 &&
                   strcmp(found + length, tail) == 0 && strcmp(rc, "0") == 0
               ? 0
               : -EPROTO;
}
