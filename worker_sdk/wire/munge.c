/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/munge.h"

#include <dlfcn.h>
#include <munge.h>
#include <pthread.h>
#include <unistd.h>

#include "worker_sdk/base/str.h"
#include "worker_sdk/base/symbol.h"

static const char label[] = "ctrun munge 1"; /* its NUL ends it in the payload, too */

enum {
    SECRET_BYTES = 32,
    PAYLOAD_BYTES = (int)sizeof label + SECRET_BYTES,
};

/* The functions of libmunge that we use; all NULL when it could not be loaded. */
static struct {
    munge_ctx_t (*create)(void);
    void (*destroy)(munge_ctx_t ctx);
    munge_err_t (*set)(munge_ctx_t ctx, int option, ...);
    const char *(*strerror)(munge_ctx_t ctx);
    const char *(*error)(munge_err_t code);
    munge_err_t (*encode)(char **cred, munge_ctx_t ctx, const void *buf, int len);
    munge_err_t (*decode)(const char *cred, munge_ctx_t ctx, void **buf, int *len,
                          uid_t *uid, gid_t *gid);
} lib;

/* It stays loaded. */
static void load(void)
{
    void *library = dlopen("libmunge.so.2", RTLD_NOW | RTLD_LOCAL);

    if (library && ct_find_symbol(library, "munge_ctx_create", &lib.create) &&
        ct_find_symbol(library, "munge_ctx_destroy", &lib.destroy) &&
        ct_find_symbol(library, "munge_ctx_set", &lib.set) &&
        ct_find_symbol(library, "munge_ctx_strerror", &lib.strerror) &&
        ct_find_symbol(library, "munge_strerror", &lib.error) &&
        ct_find_symbol(library, "munge_encode", &lib.encode) &&
        ct_find_symbol(library, "munge_decode", &lib.decode))
        return;
    memset(&lib, 0, sizeof lib);
    if (library)
        (void)dlclose(library); /* nothing of it is in use */
}

static int open_context(munge_ctx_t *out, struct ctrun_error *err)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, load);
    if (!lib.create)
        return ct_fail(err, CTRUN_E_AUTH,
                       "MUNGE: libmunge.so.2 cannot be loaded: is it installed?");
    if (!(*out = lib.create()))
        return ct_fail(err, CTRUN_E_AUTH, "MUNGE: out of memory");
    return 0;
}

static int fail(munge_ctx_t ctx, munge_err_t code, const char *what,
                struct ctrun_error *err)
{
    const char *why = lib.strerror(ctx);

    return ct_fail(err, CTRUN_E_AUTH, "MUNGE: %s: %s", what,
                   why ? why : lib.error(code));
}

static int encode(munge_ctx_t ctx, const void *payload, int length,
                  char credential[CT_CREDENTIAL_MAX], struct ctrun_error *err)
{
    char *text = NULL;
    munge_err_t code = lib.set(ctx, MUNGE_OPT_UID_RESTRICTION, geteuid());
    int rc = 0;

    if (code == EMUNGE_SUCCESS)
        code = lib.encode(&text, ctx, payload, length);
    if (code != EMUNGE_SUCCESS)
        rc = fail(ctx, code, "make a credential", err);
    else if (ct_copy(credential, CT_CREDENTIAL_MAX, text) < 0)
        rc = ct_fail(err, CTRUN_E_AUTH,
                     "MUNGE: a credential of %zu bytes, at most %d are possible",
                     strlen(text), CT_CREDENTIAL_MAX - 1);
    free(text);
    return rc;
}

bool ct_munge_is_usable(struct ctrun_error *err)
{
    char credential[CT_CREDENTIAL_MAX];
    munge_ctx_t ctx;
    int rc = open_context(&ctx, err);

    if (rc < 0)
        return false;
    rc = encode(ctx, label, (int)sizeof label, credential, err);
    lib.destroy(ctx);
    return rc == 0;
}

int ct_munge_issue(struct ct_auth_token *token, char credential[CT_CREDENTIAL_MAX],
                   struct ctrun_error *err)
{
    uint8_t payload[PAYLOAD_BYTES];
    munge_ctx_t ctx;
    int rc = ct_auth_token_generate(token, err);

    if (rc < 0 || (rc = open_context(&ctx, err)) < 0)
        return rc;
    memcpy(payload, label, sizeof label);
    memcpy(payload + sizeof label, token->bytes, SECRET_BYTES);
    rc = encode(ctx, payload, PAYLOAD_BYTES, credential, err);
    explicit_bzero(payload, sizeof payload);
    lib.destroy(ctx);
    return rc;
}

/* EMUNGE_CRED_REPLAYED: another agent of this machine had it decoded before; see the header. */
static bool is_good(munge_err_t code)
{
    return code == EMUNGE_SUCCESS || code == EMUNGE_CRED_REPLAYED;
}

static int take_secret(struct ct_auth_token *token, const void *payload, int length,
                       uid_t uid, struct ctrun_error *err)
{
    if (uid != geteuid())
        return ct_fail(
            err, CTRUN_E_AUTH,
            "MUNGE: the rendezvous server runs as uid %u, ctrun on this node as uid %u",
            (unsigned)uid, (unsigned)geteuid());
    if (!payload || length != PAYLOAD_BYTES ||
        memcmp(payload, label, sizeof label) != 0)
        return ct_fail(
            err, CTRUN_E_AUTH,
            "MUNGE: the credential of the rendezvous server was not made by ctrun");
    memset(token, 0, sizeof *token);
    memcpy(token->bytes, (const uint8_t *)payload + sizeof label, SECRET_BYTES);
    token->length = SECRET_BYTES;
    return 0;
}

int ct_munge_read(struct ct_auth_token *token, const char *credential,
                  struct ctrun_error *err)
{
    void *payload = NULL;
    int length = 0;
    uid_t uid = (uid_t)-1;
    gid_t gid;
    munge_ctx_t ctx;
    munge_err_t code;
    int rc = open_context(&ctx, err);

    if (rc < 0)
        return rc;
    code = lib.decode(credential, ctx, &payload, &length, &uid, &gid);
    rc = is_good(code)
             ? take_secret(token, payload, length, uid, err)
             : fail(ctx, code, "read the credential of the rendezvous server", err);
    if (payload)
        explicit_bzero(payload, (size_t)(length > 0 ? length : 0));
    free(payload);
    lib.destroy(ctx);
    return rc;
}
