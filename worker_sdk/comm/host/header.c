/* SPDX-License-Identifier: Apache-2.0 */
#include "worker_sdk/comm/host/header.h"

#include <errno.h>

#include "worker_sdk/base/bytes.h"
#include "worker_sdk/base/dtype.h"
#include "worker_sdk/base/error.h"

enum {
    HEADER_MAGIC = 0x31746d63 /* "cmt1" */
};

/* The header of a collective must be equal, bit for bit, on all members that make the same call:
 * headers are compared as bytes. */
void ct_header_write(unsigned char *dst, const struct ct_call *call)
{
    struct ct_writer out;

    ct_writer_init(&out, dst, CT_HEADER_BYTES);
    ct_write_u32(&out, HEADER_MAGIC);
    ct_write_u8(&out, (uint8_t)call->kind);
    ct_write_u8(&out, (uint8_t)call->dtype);
    ct_write_u8(&out, (uint8_t)call->op);
    ct_write_u8(&out, call->pass);
    ct_write_u32(&out, (uint32_t)call->peer);
    ct_write_u32(&out, 0);
    ct_write_u64(&out, call->number);
    ct_write_u64(&out, call->count);
}

void ct_header_write_message(unsigned char *dst, const struct ct_comm_message *message)
{
    const struct ct_call call = {.kind = CT_CALL_SEND,
                                 .dtype = message->dtype,
                                 .count = message->bytes /
                                          ctrun_dtype_size(message->dtype)};

    ct_header_write(dst, &call);
}

/* The call of a header, or -EBADMSG. */
static int read_header(struct ct_call *call, const unsigned char *header)
{
    struct ct_reader in;

    ct_reader_init(&in, header, CT_HEADER_BYTES);
    if (ct_read_u32(&in) != HEADER_MAGIC)
        return -EBADMSG;
    *call = (struct ct_call){.kind = (enum ct_call_kind)ct_read_u8(&in)};
    call->dtype = (enum ctrun_dtype)ct_read_u8(&in);
    call->op = (enum ctrun_op)ct_read_u8(&in);
    call->pass = ct_read_u8(&in);
    call->peer = (int)ct_read_u32(&in);
    (void)ct_read_u32(&in);
    call->number = ct_read_u64(&in);
    call->count = ct_read_u64(&in);
    return 0;
}

int ct_header_fail(const struct ct_call *call, int me, const unsigned char *theirs,
                   int peer, struct ctrun_error *err)
{
    struct ct_call other;

    if (read_header(&other, theirs) < 0)
        return ct_fail(err, CTRUN_E_PROTOCOL,
                       "%s: rank %d sent data that do not begin like a call of ctrun",
                       ct_call_name(call->kind), peer);
    return ct_call_fail_mismatch(call, me, &other, peer, err);
}

int ct_header_fail_length(const struct ct_call *call, int me, const unsigned char *own,
                          const unsigned char *theirs, int peer,
                          struct ctrun_error *err)
{
    struct ct_call given, wanted;

    if (read_header(&given, theirs) < 0 || read_header(&wanted, own) < 0)
        return ct_header_fail(call, me, theirs, peer, err);
    return ct_fail(err, CTRUN_E_MISMATCH,
                   "%s (collective %llu): rank %d gives %zu %s to rank %d, which "
                   "expects %zu from it",
                   ct_call_name(call->kind), (unsigned long long)call->number, peer,
                   given.count, ct_dtype_name((int)given.dtype), me, wanted.count);
}
