/* SPDX-License-Identifier: Apache-2.0 */
/* Two inputs in one: the bytes as frames of an unknown client to an end of a sealed link, which
 * must accept none of them, and as messages between an agent and the admission of a server. */
#include <stdlib.h>
#include <string.h>

#include "rendezvous/session/admission.h"
#include "worker_sdk/wire/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char secret[] = "a token of the fuzzer";
static const struct ct_resume no_resume;

static void open_strange(struct ct_seal *seal, const struct ct_frame *frame)
{
    static uint8_t plain[CT_FRAME_BODY_MAX_BYTES];
    struct ct_frame inner;

    if (ct_seal_decode(seal, frame, plain, &inner) == 0 && seal->is_on)
        abort(); /* no other end has sealed it */
}

static void admit(struct admission_rules *rules, const struct ct_message *messages,
                  size_t count)
{
    struct admission_offer offer = {0};
    struct admission *admission = NULL;
    struct admission_reply reply;
    struct ct_seal seal = {0};
    struct ct_proof proof;

    for (size_t i = 0; i < count; i++) {
        const struct ct_message *in = &messages[i];

        if (in->kind == CT_MESSAGE_OFFER) {
            memcpy(offer.key, in->offer->key, sizeof offer.key);
            offer.has_munge = in->offer->has_munge;
        } else if (in->kind == CT_MESSAGE_HELLO && !admission &&
                   !admission_check(rules, &offer, in->hello))
            (void)admission_create(&admission, rules, &offer, &no_resume, in->hello,
                                   &reply, NULL);
        else if (in->kind == CT_MESSAGE_PROOF && admission &&
                 admission_prove(admission, in->proof, &proof, &seal))
            abort(); /* the fuzzer does not know the token */
    }
    admission_destroy(admission);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    enum {
        MESSAGES_MAX = 8
    };
    static union {
        struct ct_offer offer;
        struct ct_hello hello;
        struct ct_proof proof;
    } rooms[MESSAGES_MAX];
    struct ct_message messages[MESSAGES_MAX];
    struct ct_seal sealed = {.is_on = true, .receive_key = {1}}, open = {0};
    struct ct_auth_token token;
    struct admission_rules rules = {.token = &token};
    struct ct_frame frame;
    size_t count = 0;
    int taken;

    if (ct_auth_token_set(&token, secret, NULL) < 0)
        abort();
    while (count < MESSAGES_MAX && (taken = ct_frame_decode(data, size, &frame)) > 0) {
        open_strange(&sealed, &frame);
        open_strange(&open, &frame);
        if (ct_message_decode(&frame, &messages[count], &rooms[count],
                              sizeof rooms[count]) == 0)
            count++;
        data += taken;
        size -= (size_t)taken;
    }
    admit(&rules, messages, count);
    return 0;
}
