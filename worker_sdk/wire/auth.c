/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/wire/auth.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "worker_sdk/base/whole_file.h"

_Static_assert(CT_PROOF_BYTES == crypto_auth_hmacsha256_BYTES, "a proof is one HMAC");

/* ---- Tokens ------------------------------------------------------------------------------ */

/* What an editor or another system has put into the file. NULL: nothing. */
static const char *find_fault(const char *bytes, size_t length)
{
    static const char *const marks[] = {"\xef\xbb\xbf", "\xff\xfe", "\xfe\xff"};

    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (length >= strlen(marks[i]) &&
            memcmp(bytes, marks[i], strlen(marks[i])) == 0)
            return "begins with a byte order mark";
    for (size_t i = 0; i < length; i++)
        if (iscntrl((unsigned char)bytes[i]))
            return bytes[i] == '\n' || bytes[i] == '\r' ? "has several lines"
                                                        : "has a control character";
    return NULL;
}

static int set_token(struct ct_auth_token *token, const char *bytes, size_t length,
                     struct ctrun_error *err)
{
    const char *fault;

    while (length > 0 && strchr(" \t\r\n", bytes[length - 1]))
        length--;
    if ((fault = find_fault(bytes, length)))
        return ct_fail(err, -EINVAL,
                       "a token is one line of text, this one %s; make one with "
                       "openssl rand -hex 32",
                       fault);
    if (length < CT_AUTH_TOKEN_MIN_BYTES || length > CT_AUTH_TOKEN_MAX_BYTES)
        return ct_fail(
            err, -EINVAL,
            "a token has %d to %d characters, this one has %s; make one with "
            "openssl rand -hex 32",
            CT_AUTH_TOKEN_MIN_BYTES, CT_AUTH_TOKEN_MAX_BYTES,
            length < CT_AUTH_TOKEN_MIN_BYTES ? "fewer" : "more");
    memset(token, 0, sizeof *token);
    memcpy(token->bytes, bytes, length);
    token->length = length;
    return 0;
}

int ct_auth_token_set(struct ct_auth_token *token, const char *text,
                      struct ctrun_error *err)
{
    return set_token(token, text, strlen(text), err);
}

static int check_mode(int fd, const char *path, struct ctrun_error *err)
{
    struct stat info;

    if (fstat(fd, &info) < 0)
        return ct_fail(err, CTRUN_E_USAGE, "%.600s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode))
        return ct_fail(err, CTRUN_E_USAGE, "%.600s: %s", path, strerror(EISDIR));
    if (info.st_mode & S_IRWXO)
        return ct_fail(err, CTRUN_E_USAGE,
                       "%.600s: every user of this machine may use it (mode %04o); "
                       "chmod 600 it, and make a new token",
                       path, (unsigned)(info.st_mode & 07777));
    return 0;
}

int ct_auth_token_read(struct ct_auth_token *token, const char *path,
                       struct ctrun_error *err)
{
    char bytes[CT_AUTH_TOKEN_MAX_BYTES + 64]; /* room for blanks behind it */
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    ssize_t length = 0;
    int rc;

    if (fd < 0)
        return ct_fail(err, CTRUN_E_USAGE, "%.600s: %s", path, strerror(errno));
    rc = check_mode(fd, path, err);
    if (rc == 0)
        length = ct_read_all_in(fd, bytes, sizeof bytes, CT_PIPE_WAIT_MS);
    close(fd);
    if (rc < 0)
        return rc;
    if (length < 0)
        return ct_fail(err, CTRUN_E_USAGE, "%.600s: %s", path,
                       ct_read_all_fault(length));
    rc = set_token(token, bytes, (size_t)length, err);
    sodium_memzero(bytes, sizeof bytes);
    if (rc < 0) {
        ct_wrap(err, "%.600s", path);
        if (err)
            err->code = CTRUN_E_USAGE;
        return CTRUN_E_USAGE;
    }
    return 0;
}

int ct_auth_token_take_env(struct ct_auth_token *token, struct ctrun_error *err)
{
    char *text = getenv(CT_ENV_TOKEN);
    int rc;

    if (!text || !*text)
        return 0;
    rc = ct_auth_token_set(token, text, err);
    sodium_memzero(text, strlen(text)); /* /proc/PID/environ shows this very memory */
    (void)unsetenv(CT_ENV_TOKEN);       /* fails on bad names only */
    if (rc < 0) {
        ct_wrap(err, CT_ENV_TOKEN);
        if (err)
            err->code = CTRUN_E_USAGE;
        return CTRUN_E_USAGE;
    }
    return 1;
}

static int fill_random(uint8_t *out, size_t length)
{
    const ssize_t n = getrandom(out, length, 0); /* up to 256 bytes come at once */

    return n == (ssize_t)length ? 0 : n < 0 ? -errno : -EIO;
}

int ct_auth_token_generate(struct ct_auth_token *token, struct ctrun_error *err)
{
    const int rc = fill_random(token->bytes, 32);

    if (rc < 0)
        return ct_fail(err, rc, "token: no random bytes: %s", strerror(-rc));
    token->length = 32;
    return 0;
}

void ct_auth_token_wipe(struct ct_auth_token *token)
{
    sodium_memzero(token, sizeof *token);
}

/* ---- Proofs ------------------------------------------------------------------------------ */

int ct_auth_make_nonce(uint8_t nonce[CT_NONCE_BYTES])
{
    int rc;

    do {
        rc = fill_random(nonce, CT_NONCE_BYTES);
    } while (rc == 0 && ct_auth_nonce_is_zero(nonce));
    return rc;
}

bool ct_auth_nonce_is_zero(const uint8_t nonce[CT_NONCE_BYTES])
{
    return sodium_is_zero(nonce, CT_NONCE_BYTES) == 1;
}

static void add_text(crypto_auth_hmacsha256_state *state, const char *text)
{
    const size_t length = strlen(text);
    const uint8_t head[4] = {(uint8_t)length, (uint8_t)(length >> 8),
                             (uint8_t)(length >> 16), (uint8_t)(length >> 24)};

    crypto_auth_hmacsha256_update(state, head, sizeof head);
    crypto_auth_hmacsha256_update(state, (const uint8_t *)text, length);
}

int ct_auth_hash_opening(uint8_t out[CT_PROOF_BYTES], const struct ct_resume *resume,
                         const struct ct_hello *hello)
{
    const struct ct_message first = {CT_MESSAGE_RESUME, .resume = resume};
    const struct ct_message second = {CT_MESSAGE_HELLO, .hello = hello};
    struct ct_buf bytes;
    int rc = 0;

    ct_buf_init(&bytes, 2 * (CT_FRAME_HEADER_BYTES + CT_FRAME_BODY_MAX_BYTES));
    if (resume->key != 0)
        rc = ct_message_encode(&bytes, &first);
    if (rc == 0)
        rc = ct_message_encode(&bytes, &second);
    if (rc == 0)
        (void)crypto_hash_sha256(out, ct_buf_data(&bytes), ct_buf_length(&bytes));
    ct_buf_deinit(&bytes);
    return rc;
}

void ct_auth_mac(uint8_t out[CT_PROOF_BYTES], const struct ct_auth_token *token,
                 const char *name, const struct ct_auth_scope *scope,
                 const uint8_t *extra, size_t extra_length)
{
    const uint8_t version = CT_FRAME_VERSION;
    crypto_auth_hmacsha256_state state;

    crypto_auth_hmacsha256_init(&state, token->bytes, token->length);
    add_text(&state, name);
    crypto_auth_hmacsha256_update(&state, &version, sizeof version);
    add_text(&state, scope->run_id);
    crypto_auth_hmacsha256_update(&state, scope->agent_nonce, CT_NONCE_BYTES);
    crypto_auth_hmacsha256_update(&state, scope->server_nonce, CT_NONCE_BYTES);
    if (scope->agent_key && scope->server_key) {
        crypto_auth_hmacsha256_update(&state, scope->agent_key, CT_OFFER_KEY_BYTES);
        crypto_auth_hmacsha256_update(&state, scope->server_key, CT_OFFER_KEY_BYTES);
    }
    crypto_auth_hmacsha256_update(&state, scope->opening, CT_PROOF_BYTES);
    if (extra_length > 0)
        crypto_auth_hmacsha256_update(&state, extra, extra_length);
    crypto_auth_hmacsha256_final(&state, out);
    sodium_memzero(&state, sizeof state);
}

void ct_auth_prove(uint8_t proof[CT_PROOF_BYTES], const struct ct_auth_token *token,
                   enum ct_auth_side side, const struct ct_auth_scope *scope)
{
    static const char *const sides[] = {"ctrun agent", "ctrun server"};

    ct_auth_mac(proof, token, sides[side], scope, NULL, 0);
}

bool ct_auth_check(const uint8_t proof[CT_PROOF_BYTES],
                   const struct ct_auth_token *token, enum ct_auth_side side,
                   const struct ct_auth_scope *scope)
{
    uint8_t right[CT_PROOF_BYTES];
    bool is_right;

    if (token->length == 0)
        return false;
    ct_auth_prove(right, token, side, scope);
    is_right = sodium_memcmp(right, proof, sizeof right) == 0;
    sodium_memzero(right, sizeof right);
    return is_right;
}
