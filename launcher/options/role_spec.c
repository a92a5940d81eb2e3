/* SPDX-License-Identifier: Apache-2.0 */
#include "launcher/options/role_spec.h"

#include "launcher/options/nnodes.h"
#include "worker_sdk/base/str.h"

/* Where the digits of N begin and how many they are; NULL when it is no NAME=N:... */
static const char *find_number(const char *text, size_t *digits)
{
    const char *equals = strchr(text, '=');

    if (!equals || equals == text)
        return NULL;
    *digits = strspn(equals + 1, "0123456789");
    return *digits > 0 && equals[1 + *digits] == ':' ? equals + 1 : NULL;
}

bool role_spec_is(const char *text)
{
    size_t digits;

    return find_number(text, &digits) != NULL;
}

int role_spec_parse(struct ct_role *out, const char **command, const char *text,
                    struct ctrun_error *err)
{
    size_t digits = 0;
    const char *number = find_number(text, &digits);
    const int length = (int)(number - text) - 1;
    char count[16];
    uint64_t slots;

    if (ct_format(out->name, sizeof out->name, "%.*s", length, text) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--role: '%.40s...' is longer than %d bytes",
                       text, CT_ROLE_MAX - 1);
    if (ct_format(count, sizeof count, "%.*s", (int)digits, number) < 0 ||
        ct_parse_u64(count, 1, NPROC_MAX, &slots) < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--role=%.300s: a role has 1 to %d workers on each node", text,
                       NPROC_MAX);
    out->slots = (uint32_t)slots;
    *command = number + digits + 1;
    if (!(*command)[strspn(*command, " \t\n\\")])
        return ct_fail(err, CTRUN_E_USAGE, "--role=%.300s: no command after the ':'",
                       text);
    return 0;
}

static int find_role(const struct ct_role_list *roles, const char *name, size_t length)
{
    for (int i = 0; i < roles->count; i++)
        if (strlen(roles->list[i].name) == length &&
            memcmp(roles->list[i].name, name, length) == 0)
            return i;
    return -1;
}

static int parse_restart(int64_t counts[CT_ROLES_MAX], const struct ct_role_list *roles,
                         const char *item, size_t length, struct ctrun_error *err)
{
    const char *equals = memchr(item, '=', length);
    const int shown = length < 300 ? (int)length : 300;
    char digits[16];
    uint64_t count;
    int number;

    if (!equals || equals == item)
        return ct_fail(err, CTRUN_E_USAGE, "--role-restarts=%.*s: is not NAME=N", shown,
                       item);
    if ((number = find_role(roles, item, (size_t)(equals - item))) < 0)
        return ct_fail(err, CTRUN_E_USAGE,
                       "--role-restarts=%.*s: this node has no --role of that name",
                       shown, item);
    if (ct_format(digits, sizeof digits, "%.*s", (int)(item + length - equals) - 1,
                  equals + 1) < 0 ||
        ct_parse_u64(digits, 0, INT32_MAX, &count) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "--role-restarts=%.*s: N is 0 to %d", shown,
                       item, INT32_MAX);
    if (counts[number] != ROLE_SPEC_UNSET)
        return ct_fail(err, CTRUN_E_USAGE, "--role-restarts=%.*s: %s is given twice",
                       shown, item, roles->list[number].name);
    counts[number] = (int64_t)count;
    return 0;
}

int role_spec_parse_restarts(int64_t counts[CT_ROLES_MAX],
                             const struct ct_role_list *roles, const char *text,
                             struct ctrun_error *err)
{
    size_t length;
    int rc = 0;

    for (const char *item; rc == 0 && (item = ct_next_field(&text, ',', &length));)
        rc = parse_restart(counts, roles, item, length, err);
    return rc;
}
