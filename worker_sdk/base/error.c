/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/error.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "worker_sdk/base/str.h"

static const struct {
    int code;
    const char *name;
} names[] = {
#define CT_ERROR_NAME(NAME, code, text) {code, #NAME},
    CTRUN_ERRORS(CT_ERROR_NAME)
#undef CT_ERROR_NAME
};

int ct_fail(struct ctrun_error *err, int rc, const char *fmt, ...)
{
    va_list args;

    if (err) {
        err->code = rc;
        va_start(args, fmt);
        (void)vsnprintf(err->text, sizeof err->text, fmt, args); /* cut off is fine */
        va_end(args);
    }
    return rc;
}

int ct_wrap(struct ctrun_error *err, const char *fmt, ...)
{
    char where[sizeof err->text];
    char what[sizeof err->text];
    va_list args;

    if (!err)
        return -1;
    va_start(args, fmt);
    (void)vsnprintf(where, sizeof where, fmt, args);
    va_end(args);
    memcpy(what, err->text, sizeof what);
    (void)ct_format(err->text, sizeof err->text, "%s: %s", where, what);
    return err->code;
}

const char *ct_error_name(int rc)
{
    const char *name;

    if (rc > 0)
        rc = -rc;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == rc)
            return names[i].name;
    name = strerrorname_np(-rc);
    return name ? name : "E_UNKNOWN";
}

const char *ctrun_strerror(int code)
{
    if (code > 0)
        code = -code;
    switch (code) {
    case 0: return "success";
#define CT_ERROR_TEXT(NAME, value, text)                                               \
    case value: return text;
        CTRUN_ERRORS(CT_ERROR_TEXT)
#undef CT_ERROR_TEXT
    }
    return strerrordesc_np(-code) ? strerrordesc_np(-code) : "unknown error";
}
