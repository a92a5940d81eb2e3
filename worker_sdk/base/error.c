/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/base/error.h"

#include <errno.h>

#include "worker_sdk/base/plain.h"
#include "worker_sdk/base/str.h"

static const struct {
    int code;
    const char *name;
} names[] = {
#define CT_ERROR_NAME(NAME, code, text) {code, #NAME},
    CTRUN_ERRORS(CT_ERROR_NAME) CT_PROGRAM_ERRORS(CT_ERROR_NAME)
#undef CT_ERROR_NAME
};

/* The code that is shown in place of an errno: it has an entry in ctrun-errors(7). */
static int own_code(int rc)
{
    switch (-rc) {
    case EINVAL: return CTRUN_E_USAGE;
    case ENOENT:
    case ESRCH: return CTRUN_E_NOT_FOUND;
    case EPERM:
    case EACCES: return CTRUN_E_DENIED;
    case EADDRINUSE: return CTRUN_E_PORT_BUSY;
    case EADDRNOTAVAIL:
    case ECONNREFUSED:
    case ECONNRESET:
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EPIPE: return CTRUN_E_UNREACHABLE;
    case ETIMEDOUT: return CTRUN_E_TIMEOUT;
    case EBADMSG:
    case EPROTO: return CTRUN_E_PROTOCOL;
    case ENOEXEC: return CTRUN_E_EXEC;
    case ENOMEM:
    case EAGAIN: /* fork(), pthread_create() */
    case EMFILE:
    case ENFILE:
    case EXFULL: /* the rendezvous server */
    case EDQUOT:
    case EFBIG:
    case ENOSPC: return CTRUN_E_RESOURCES;
    case ENOSYS:
    case ENOTSUP: return CTRUN_E_UNSUPPORTED;
    default: return rc <= -20000 ? rc : CTRUN_E_SYSTEM;
    }
}

int ct_fail_null(struct ctrun_error *err, const char *what)
{
    return ct_fail(err, -EINVAL, "the %s is NULL", what);
}

int ct_fail_called(struct ctrun_error *err, int rc, const char *name)
{
    if (err && err->text[0])
        err->code = rc;
    else
        (void)ct_fail(err, rc, "%s returned %d without a reason", name, rc);
    return rc;
}

bool ct_is_short(int rc)
{
    return rc == -EMFILE || rc == -ENFILE || rc == -ENOBUFS || rc == -ENOMEM;
}

int ct_fail(struct ctrun_error *err, int rc, const char *fmt, ...)
{
    va_list args;

    if (err) {
        err->code = rc;
        va_start(args, fmt);
        (void)vsnprintf(err->text, sizeof err->text, fmt, args); /* cut off is fine */
        va_end(args);
        ct_make_plain(err->text, true);
    }
    return rc;
}

void ct_wrap(struct ctrun_error *err, const char *fmt, ...)
{
    char where[sizeof err->text];
    char what[sizeof err->text];
    va_list args;

    if (!err)
        return;
    va_start(args, fmt);
    (void)vsnprintf(where, sizeof where, fmt, args);
    va_end(args);
    memcpy(what, err->text, sizeof what);
    (void)ct_format(err->text, sizeof err->text, "%s: %s", where, what);
    ct_make_plain(err->text, true);
}

const char *ct_error_name(int rc)
{
    rc = own_code(rc > 0 ? -rc : rc);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].code == rc)
            return names[i].name;
    return "E_SYSTEM";
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
        CT_PROGRAM_ERRORS(CT_ERROR_TEXT)
#undef CT_ERROR_TEXT
    }
    return code >= -EHWPOISON ? strerror(-code)
                              : "unknown error"; /* EHWPOISON is the last errno */
}
