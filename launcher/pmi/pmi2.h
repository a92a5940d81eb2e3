/* SPDX-License-Identifier: Apache-2.0 */
/* PMI-2's wire, as Slurm's plug-in mpi/pmi2 and MPICH's hydra speak it. Pure.
 *
 *     ours    cmd=init pmi_version=2 pmi_subversion=0\n                 one line
 *     theirs  cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n
 *     ours        13cmd=kvs-fence;                          six bytes of length, then fields
 *     theirs  28    cmd=kvs-fence-response;rc=0;
 *
 * A field is KEY=VALUE and ends with a semicolon, which no value may hold: MPICH doubles it, Slurm
 * knows no escape at all. Each request has one answer, in the order of the requests. */
#pragma once

#include <stddef.h>

enum {
    PMI2_LENGTH_BYTES = 6,
    PMI2_BODY_MAX =
        4096, /* a value is at most 1024 bytes long in every implementation */
    PMI2_VALUE_MAX = 1024,
    PMI2_LINE_MAX = 64, /* Slurm reads no more of the first line */
    PMI2_FIELDS_MAX = 24,
};

struct pmi2_field {
    const char *key;
    const char *value;
};

/* An answer; its fields are borrowed from the body. */
struct pmi2_answer {
    struct pmi2_field fields[PMI2_FIELDS_MAX];
    size_t count;
};

/* The first line that we send, and the check of the server's: 0, or -EPROTO when it is not
 * PMI-2's. */
extern const char pmi2_init_line[];
int pmi2_check_init(const char *line);

/* A request with its length in front: "cmd=NAME;" and the fields. The length of the whole, -EINVAL:
 * a byte that the wire cannot carry, or -ENAMETOOLONG. */
int pmi2_format(char *dst, size_t size, const char *name,
                const struct pmi2_field *fields, size_t count);
/* How long the body is that follows these six bytes; -EPROTO. */
int pmi2_parse_length(const char text[PMI2_LENGTH_BYTES]);
/* Cuts a body (length bytes, and room for a NUL after them) into its fields. 0 or -EPROTO. */
int pmi2_parse(struct pmi2_answer *out, char *body, size_t length);
/* The first field of that name; NULL when there is none. */
const char *pmi2_find(const struct pmi2_answer *answer, const char *key);
/* 0 when it answers the request NAME with success, else -EPROTO. */
int pmi2_check(const struct pmi2_answer *answer, const char *name);
