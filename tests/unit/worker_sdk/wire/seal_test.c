/* SPDX-License-Identifier: Apache-2.0 */
/* A sealed link: only the other end can open what one end sealed, once and in order. */
#include <errno.h>
#include <string.h>

#include "tests/lib/test.h"
#include "worker_sdk/wire/seal.h"

static struct ct_seal agent, server;
static uint8_t plain[CT_FRAME_BODY_MAX_BYTES];

static const uint8_t nonce_a[CT_NONCE_BYTES] = {1}, nonce_s[CT_NONCE_BYTES] = {2};

struct ends {
    const char *agent_token, *server_token;
    const char *agent_run, *server_run;
};

static int open_both(const struct ends *ends)
{
    struct ct_seal_pair a, s;
    struct ct_auth_token token_a, token_s;
    uint8_t key_a[CT_OFFER_KEY_BYTES], key_s[CT_OFFER_KEY_BYTES];
    struct ct_auth_scope scope = {NULL, nonce_a, nonce_s, key_a, key_s, nonce_a};

    assert_int_equal(ct_seal_make_pair(&a), 0);
    assert_int_equal(ct_seal_make_pair(&s), 0);
    memcpy(key_a, a.public_key, sizeof key_a);
    memcpy(key_s, s.public_key, sizeof key_s);
    assert_int_equal(ct_auth_token_set(&token_a, ends->agent_token, NULL), 0);
    assert_int_equal(ct_auth_token_set(&token_s, ends->server_token, NULL), 0);
    scope.run_id = ends->agent_run;
    assert_int_equal(ct_seal_begin(&agent, &a, &token_a, CT_AUTH_AGENT, &scope), 0);
    scope.run_id = ends->server_run;
    return ct_seal_begin(&server, &s, &token_s, CT_AUTH_SERVER, &scope);
}

static int open_alike(void **state)
{
    static const struct ends alike = {"sixteen letters.", "sixteen letters.", "r", "r"};

    return open_both(&alike);
}

static void seal(struct ct_seal *from, struct ct_buf *out, uint64_t number)
{
    const struct ct_worker_step step = {.step = number};
    const struct ct_message message = {CT_MESSAGE_WORKER_STEP, .worker_step = &step};

    ct_buf_init(out, 4 * CT_FRAME_BODY_MAX_BYTES);
    assert_int_equal(ct_seal_encode(from, out, &message), 0);
}

static int unseal(struct ct_seal *to, const struct ct_buf *in, uint64_t *number)
{
    struct ct_frame frame, inner;
    struct ct_worker_step step;
    struct ct_message message;
    int rc;

    assert_int_equal(ct_frame_decode(ct_buf_data(in), ct_buf_length(in), &frame),
                     ct_buf_length(in));
    if ((rc = ct_seal_decode(to, &frame, plain, &inner)) < 0)
        return rc;
    assert_int_equal(ct_message_decode(&inner, &message, &step, sizeof step), 0);
    *number = step.step;
    return 0;
}

TEST_AROUND(what_one_end_seals_the_other_opens, open_alike, NULL)
{
    struct ct_buf buf;
    uint64_t number;

    for (uint64_t i = 0; i < 1000; i++) {
        seal(&agent, &buf, i);
        assert_int_equal(unseal(&server, &buf, &number), 0);
        assert_int_equal(number, i);
        ct_buf_deinit(&buf);
        seal(&server, &buf, i + 7);
        assert_int_equal(unseal(&agent, &buf, &number), 0);
        assert_int_equal(number, i + 7);
        ct_buf_deinit(&buf);
    }
}

TEST_AROUND(nothing_of_the_message_is_readable, open_alike, NULL)
{
    static const struct ct_leave leave = {.reason = "a reason that must not be seen"};
    const struct ct_message message = {CT_MESSAGE_LEAVE, .leave = &leave};
    struct ct_buf buf;

    ct_buf_init(&buf, CT_FRAME_BODY_MAX_BYTES);
    assert_int_equal(ct_seal_encode(&agent, &buf, &message), 0);
    assert_null(memmem(ct_buf_data(&buf), ct_buf_length(&buf), "reason", 6));
    ct_buf_deinit(&buf);
}

TEST_AROUND(a_repeated_left_out_or_reflected_frame_is_refused, open_alike, NULL)
{
    struct ct_buf first, second, third;
    uint64_t number;

    seal(&agent, &first, 1);
    seal(&agent, &second, 2);
    seal(&agent, &third, 3);
    assert_int_equal(unseal(&agent, &first, &number), -EBADMSG); /* our own message */
    assert_int_equal(unseal(&server, &second, &number), -EBADMSG);
    assert_int_equal(unseal(&server, &first, &number), 0);
    assert_int_equal(unseal(&server, &first, &number), -EBADMSG);
    assert_int_equal(unseal(&server, &third, &number), -EBADMSG);
    assert_int_equal(unseal(&server, &second, &number), 0);
    ct_buf_deinit(&first);
    ct_buf_deinit(&second);
    ct_buf_deinit(&third);
}

TEST_AROUND(every_changed_bit_is_found, open_alike, NULL)
{
    struct ct_frame frame, inner;
    struct ct_buf buf;

    seal(&agent, &buf, 1);
    for (size_t at = CT_FRAME_HEADER_BYTES; at < ct_buf_length(&buf); at++) {
        uint8_t *byte = buf.data + buf.start + at;

        *byte ^= 0x10;
        assert_true(ct_frame_decode(ct_buf_data(&buf), ct_buf_length(&buf), &frame) >
                    0);
        assert_int_equal(ct_seal_decode(&server, &frame, plain, &inner), -EBADMSG);
        *byte ^= 0x10;
    }
    assert_true(ct_frame_decode(ct_buf_data(&buf), ct_buf_length(&buf), &frame) > 0);
    frame.version++; /* the header is authenticated, too */
    assert_int_equal(ct_seal_decode(&server, &frame, plain, &inner), -EBADMSG);
    frame.version--;
    for (frame.length = 0; frame.length < 17; frame.length++)
        assert_int_equal(ct_seal_decode(&server, &frame, plain, &inner), -EBADMSG);
    ct_buf_deinit(&buf);
}

TEST(other_tokens_and_runs_make_other_keys)
{
    static const struct ends others[] = {
        {"sixteen letters.", "seventeen letters", "r", "r"},
        {"sixteen letters.", "sixteen letters.", "r", "rr"},
    };
    struct ct_buf buf;
    uint64_t number;

    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        assert_int_equal(open_both(&others[i]), 0);
        seal(&agent, &buf, 1);
        assert_int_equal(unseal(&server, &buf, &number), -EBADMSG);
        ct_buf_deinit(&buf);
    }
}

TEST_AROUND(plain_frames_are_refused_while_it_is_on_and_sealed_ones_while_it_is_off,
            open_alike, NULL)
{
    static const struct ct_worker_step step = {.step = 1};
    const struct ct_message message = {CT_MESSAGE_WORKER_STEP, .worker_step = &step};
    struct ct_seal off = {0};
    struct ct_frame frame, inner;
    struct ct_buf buf;
    uint64_t number;

    seal(&agent, &buf, 1);
    assert_int_equal(unseal(&off, &buf, &number), -EBADMSG);
    ct_buf_deinit(&buf);
    ct_buf_init(&buf, CT_FRAME_BODY_MAX_BYTES);
    assert_int_equal(ct_seal_encode(&off, &buf, &message), 0);
    assert_true(ct_frame_decode(ct_buf_data(&buf), ct_buf_length(&buf), &frame) > 0);
    assert_int_equal(frame.kind, CT_MESSAGE_WORKER_STEP);
    assert_int_equal(ct_seal_decode(&off, &frame, plain, &inner), 0);
    assert_int_equal(ct_seal_decode(&server, &frame, plain, &inner), -EBADMSG);
    ct_buf_deinit(&buf);
}

TEST(a_key_that_makes_a_known_secret_is_refused)
{
    static const uint8_t zero[CT_OFFER_KEY_BYTES], one[CT_OFFER_KEY_BYTES] = {1};
    const uint8_t *const bad[] = {zero, one};
    struct ct_auth_token token;
    struct ct_seal_pair pair;

    assert_int_equal(ct_auth_token_set(&token, "sixteen letters.", NULL), 0);
    for (size_t i = 0; i < 2; i++) {
        const struct ct_auth_scope scope = {"r",    nonce_a,         nonce_s,
                                            bad[i], pair.public_key, nonce_a};

        assert_int_equal(ct_seal_make_pair(&pair), 0);
        assert_int_equal(ct_seal_begin(&server, &pair, &token, CT_AUTH_SERVER, &scope),
                         -EPROTO);
        assert_false(server.is_on);
        assert_memory_equal(pair.secret_key, zero, sizeof zero); /* wiped */
    }
}

TEST_AROUND(the_largest_message_fits, open_alike, NULL)
{
    static struct ct_verdict verdict = {.failure_count = CT_FAILURES_MAX};
    static union ct_message_room room;
    const struct ct_message message = {.kind = CT_MESSAGE_VERDICT, .verdict = &verdict};
    struct ct_message back;
    struct ct_frame frame, inner;
    struct ct_buf buf;

    for (int i = 0; i < CT_FAILURES_MAX; i++) {
        struct ct_failure *failure = &verdict.failures[i];

        memset(failure->host, 'h', sizeof failure->host - 1);
        memset(failure->error_file, 'f', sizeof failure->error_file - 1);
        memset(failure->text, 't', sizeof failure->text - 1);
    }
    ct_buf_init(&buf, 2 * CT_FRAME_BODY_MAX_BYTES);
    assert_int_equal(ct_seal_encode(&server, &buf, &message), 0);
    assert_true(ct_frame_decode(ct_buf_data(&buf), ct_buf_length(&buf), &frame) > 0);
    assert_int_equal(ct_seal_decode(&agent, &frame, plain, &inner), 0);
    assert_int_equal(ct_message_decode(&inner, &back, &room, sizeof room), 0);
    assert_string_equal(back.verdict->failures[15].text, verdict.failures[15].text);
    ct_buf_deinit(&buf);
}
