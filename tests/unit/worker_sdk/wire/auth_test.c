/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/lib/test.h"
#include "worker_sdk/base/whole_file.h"
#include "worker_sdk/wire/auth.h"

static uint8_t agent_nonce[CT_NONCE_BYTES];  /* 0, 1, 2, ... */
static uint8_t server_nonce[CT_NONCE_BYTES]; /* 32, 33, ... */
static uint8_t opening[CT_PROOF_BYTES];      /* 64, 65, ... */
static const struct ct_auth_scope scope = {.run_id = "job",
                                           .agent_nonce = agent_nonce,
                                           .server_nonce = server_nonce,
                                           .opening = opening};

static struct ct_auth_token token_of(uint8_t byte, size_t length)
{
    struct ct_auth_token token = {.length = length};

    memset(token.bytes, byte, length);
    return token;
}

static int fill_nonces(void **state)
{
    for (int i = 0; i < CT_NONCE_BYTES; i++) {
        agent_nonce[i] = (uint8_t)i;
        server_nonce[i] = (uint8_t)(i + CT_NONCE_BYTES);
        opening[i] = (uint8_t)(i + 2 * CT_NONCE_BYTES);
    }
    return 0;
}

/* The keys are those of RFC 4231's cases 1, 2 and 6 (shorter and longer than a block), the
 * proofs were computed by Python's hmac from the layout in auth.h. */
TEST(proofs_have_their_golden_bytes)
{
    static const struct {
        uint8_t byte;
        size_t length;
        const char *agent, *server;
    } golden[] = {
        {0x0b, 20, "40fc35b50e79e9a6ce0c5f458339a290243b7ee9f0eb7bf2ccf9c0cc033c8398",
         "e6d2d4c511d59cddb534259dbfe3b9747223c605fd0598e78c3186d209a6f12f"},
        {0, 4, "1f90fa5746d48d6626c5eae1632ba7575cea9cbb5e7bc595197b4efa9395d74c",
         "aa3c12089ea0635af7bbe88c37fcf1d049270c72bdb230dd9943603d90d14834"},
        {0xaa, 131, "bfaad3059762b4eb89ef7cf069bdfa8cb15c660ff66dd1b35da6d30c4445067c",
         "6197fb3a8ab8b72deea8e49e88149327950e7a393db7eb6888186728edf35407"},
    };

    for (size_t i = 0; i < sizeof golden / sizeof *golden; i++) {
        struct ct_auth_token token = token_of(golden[i].byte, golden[i].length);

        if (golden[i].byte == 0)
            memcpy(token.bytes, "Jefe", 4);
        for (int side = CT_AUTH_AGENT; side <= CT_AUTH_SERVER; side++) {
            uint8_t proof[CT_PROOF_BYTES];
            char hex[2 * CT_PROOF_BYTES + 1];

            ct_auth_prove(proof, &token, (enum ct_auth_side)side, &scope);
            for (int b = 0; b < CT_PROOF_BYTES; b++)
                (void)snprintf(hex + 2 * b, 3, "%02x", proof[b]);
            assert_string_equal(hex, side == CT_AUTH_AGENT ? golden[i].agent
                                                           : golden[i].server);
        }
    }
}

TEST(a_proof_counts_for_its_token_run_side_and_nonces_only)
{
    const struct ct_auth_token token = token_of('t', 32), other = token_of('o', 32),
                               longer = token_of('t', 33), none = {0};
    struct ct_auth_scope other_run = scope, replayed = scope, reflected = scope,
                         changed = scope;
    uint8_t proof[CT_PROOF_BYTES];

    other_run.run_id = "jo";
    replayed.server_nonce = agent_nonce;
    reflected.agent_nonce = server_nonce;
    reflected.server_nonce = agent_nonce;
    changed.opening = agent_nonce;
    ct_auth_prove(proof, &token, CT_AUTH_AGENT, &scope);
    assert_true(ct_auth_check(proof, &token, CT_AUTH_AGENT, &scope));
    assert_false(ct_auth_check(proof, &token, CT_AUTH_SERVER, &scope));
    assert_false(ct_auth_check(proof, &token, CT_AUTH_SERVER, &reflected));
    assert_false(ct_auth_check(proof, &token, CT_AUTH_AGENT, &reflected));
    assert_false(ct_auth_check(proof, &token, CT_AUTH_AGENT, &replayed));
    assert_false(ct_auth_check(proof, &token, CT_AUTH_AGENT, &other_run));
    assert_false(ct_auth_check(proof, &token, CT_AUTH_AGENT, &changed));
    assert_false(ct_auth_check(proof, &other, CT_AUTH_AGENT, &scope));
    assert_false(ct_auth_check(proof, &longer, CT_AUTH_AGENT, &scope));
    for (int bit = 0; bit < 8 * CT_PROOF_BYTES; bit++) {
        proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
        assert_false(ct_auth_check(proof, &token, CT_AUTH_AGENT, &scope));
        proof[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    ct_auth_prove(proof, &none, CT_AUTH_AGENT, &scope);
    assert_false(ct_auth_check(proof, &none, CT_AUTH_AGENT, &scope));
}

TEST(every_field_of_resume_and_hello_is_covered)
{
    struct ct_hello hello = {.run_id = "job", .host = "n1", .min_nodes = 2};
    struct ct_resume none = {0}, resume = {.id = 1, .key = 2, .generation = 3};
    uint8_t hash[4][CT_PROOF_BYTES];

    assert_int_equal(ct_auth_hash_opening(hash[0], &none, &hello), 0);
    assert_int_equal(ct_auth_hash_opening(hash[1], &resume, &hello), 0);
    resume.state = CT_RESUME_STOPPED;
    assert_int_equal(ct_auth_hash_opening(hash[2], &resume, &hello), 0);
    hello.min_nodes = 1;
    assert_int_equal(ct_auth_hash_opening(hash[3], &resume, &hello), 0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < i; j++)
            assert_memory_not_equal(hash[i], hash[j], CT_PROOF_BYTES);
}

TEST(nonces_and_tokens_differ_every_time)
{
    uint8_t a[CT_NONCE_BYTES] = {0}, b[CT_NONCE_BYTES];
    struct ct_auth_token one = {0}, two = {0};

    assert_true(ct_auth_nonce_is_zero(a));
    assert_int_equal(ct_auth_make_nonce(a), 0);
    assert_int_equal(ct_auth_make_nonce(b), 0);
    assert_false(ct_auth_nonce_is_zero(a));
    assert_memory_not_equal(a, b, sizeof a);
    assert_int_equal(ct_auth_token_generate(&one, NULL), 0);
    assert_int_equal(ct_auth_token_generate(&two, NULL), 0);
    assert_int_equal(one.length, 32);
    assert_memory_not_equal(one.bytes, two.bytes, 32);
    ct_auth_token_wipe(&one);
    assert_int_equal(one.length, 0);
    assert_true(ct_auth_nonce_is_zero(one.bytes));
}

static int read_file(struct ct_auth_token *token, const char *text, mode_t mode,
                     struct ctrun_error *err)
{
    char path[] = "/tmp/ctrun-auth-test-XXXXXX";
    const int fd = mkstemp(path);
    int rc;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (int)strlen(text));
    assert_int_equal(fchmod(fd, mode), 0);
    close(fd);
    rc = ct_auth_token_read(token, path, err);
    if (rc < 0 && err)
        assert_non_null(strstr(err->text, path));
    unlink(path);
    return rc;
}

TEST(a_token_file_is_read_without_the_blanks_behind)
{
    struct ct_auth_token token;

    assert_int_equal(read_file(&token, "0123456789abcdef \r\n", 0600, NULL), 0);
    assert_int_equal(token.length, 16);
    assert_memory_equal(token.bytes, "0123456789abcdef", 16);
    assert_int_equal(read_file(&token, "0123456789 abcdef", 0440, NULL), 0);
    assert_int_equal(token.length, 17);
}

TEST(a_token_file_that_is_no_secret_is_refused)
{
    static const mode_t modes[] = {0604, 0602, 0601, 0644, 0666};
    struct ct_auth_token token;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++) {
        assert_int_equal(read_file(&token, "0123456789abcdef", modes[i], &err),
                         CTRUN_E_USAGE);
        assert_int_equal(err.code, CTRUN_E_USAGE);
        assert_non_null(strstr(err.text, "chmod 600"));
        assert_null(strstr(err.text, "0123456789abcdef"));
    }
}

TEST(a_token_that_is_too_short_or_too_long_is_refused)
{
    char text[CT_AUTH_TOKEN_MAX_BYTES + 200] = {0};
    struct ct_auth_token token;
    struct ctrun_error err;

    assert_int_equal(read_file(&token, "", 0600, &err), CTRUN_E_USAGE);
    assert_int_equal(read_file(&token, "0123456789abcde\n\n", 0600, &err),
                     CTRUN_E_USAGE);
    assert_null(strstr(err.text, "0123456789abcde"));
    memset(text, 'x', CT_AUTH_TOKEN_MAX_BYTES);
    assert_int_equal(read_file(&token, text, 0600, NULL), 0);
    assert_int_equal(token.length, CT_AUTH_TOKEN_MAX_BYTES);
    memset(text, 'x', CT_AUTH_TOKEN_MAX_BYTES + 1);
    assert_int_equal(read_file(&token, text, 0600, NULL), CTRUN_E_USAGE);
    memset(text, 'x', sizeof text - 1);
    assert_int_equal(read_file(&token, text, 0600, NULL), CTRUN_E_USAGE);
    assert_int_equal(ct_auth_token_read(&token, "/nonexistent/token", &err),
                     CTRUN_E_USAGE);
    assert_int_equal(ct_auth_token_read(&token, "/", &err), CTRUN_E_USAGE);
}

TEST(a_token_of_several_lines_or_with_a_mark_is_refused)
{
    static const char *const texts[] = {"0123456789abcdef\n0123456789abcdef\n",
                                        "0123456789abcdef\r0123456789abcdef",
                                        "\xef\xbb\xbf"
                                        "0123456789abcdef",
                                        "\xff\xfe"
                                        "0123456789abcdef"};
    struct ct_auth_token token;
    struct ctrun_error err;

    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        assert_int_equal(read_file(&token, texts[i], 0600, &err), CTRUN_E_USAGE);
        assert_non_null(strstr(err.text, i < 2 ? "several lines" : "byte order mark"));
        assert_int_equal(ct_auth_token_set(&token, texts[i], NULL), -EINVAL);
    }
    assert_int_equal(ct_auth_token_set(&token, "0123456789abcde\x01", &err), -EINVAL);
    assert_non_null(strstr(err.text, "control character"));
    assert_int_equal(ct_auth_token_set(&token, "0123456789abcdef\r\n", NULL), 0);
    assert_int_equal(token.length,
                     16); /* as from a file, and from a secret in a variable */
}

TEST(a_token_may_come_through_a_pipe)
{
    char path[] = "/tmp/ctrun-auth-test-XXXXXX";
    struct ct_auth_token token;
    int status;
    pid_t writer;

    close(mkstemp(path));
    unlink(path);
    assert_int_equal(mkfifo(path, 0600), 0);
    if ((writer = fork()) == 0) {
        const int fd = open(path, O_WRONLY | O_CLOEXEC);

        _exit(write(fd, "0123456789abcdef\n", 17) == 17 ? 0 : 1);
    }
    assert_int_equal(ct_auth_token_read(&token, path, NULL), 0);
    assert_int_equal(token.length, 16);
    assert_int_equal(waitpid(writer, &status, 0), writer);
    assert_int_equal(status, 0);
    unlink(path);
}

TEST(a_pipe_to_which_nobody_writes_is_not_waited_for)
{
    char bytes[8];
    int ends[2];

    assert_int_equal(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
    assert_int_equal(ct_read_all_in(ends[0], bytes, sizeof bytes, 1), -ETIMEDOUT);
    assert_int_equal(write(ends[1], "abc", 3), 3); /* and does not end */
    assert_int_equal(ct_read_all_in(ends[0], bytes, sizeof bytes, 1), -ETIMEDOUT);
    close(ends[0]);
    close(ends[1]);
}

TEST(the_environment_loses_the_token)
{
    struct ct_auth_token token = {0};
    struct ctrun_error err;
    char *text;

    assert_int_equal(unsetenv(CT_ENV_TOKEN), 0);
    assert_int_equal(ct_auth_token_take_env(&token, &err), 0);
    assert_int_equal(setenv(CT_ENV_TOKEN, "0123456789abcdef", 1), 0);
    text = getenv(CT_ENV_TOKEN);
    assert_int_equal(ct_auth_token_take_env(&token, &err), 1);
    assert_int_equal(token.length, 16);
    assert_null(getenv(CT_ENV_TOKEN));
    assert_int_equal(*text, '\0'); /* what /proc/PID/environ would show */
    assert_int_equal(setenv(CT_ENV_TOKEN, "short", 1), 0);
    assert_int_equal(ct_auth_token_take_env(&token, &err), CTRUN_E_USAGE);
    assert_null(getenv(CT_ENV_TOKEN));
    assert_null(strstr(err.text, "short"));
}

int main(void)
{
    return test_run(fill_nonces, NULL);
}
