/* SPDX-License-Identifier: Apache-2.0 */
/* --role NAME=N:COMMAND, one of several programs of a job: trainer=4:'./train --lr 1'. Anything
 * else is torchrun's --role NAME, whatever it contains. Pure. */
#pragma once

#include <stdbool.h>

#include "worker_sdk/base/error.h"
#include "worker_sdk/wire/message.h"

enum {
    ROLE_SPEC_UNSET = -1
};

/* True for NAME=DIGITS:..., with a NAME that is not empty and holds no '='. */
bool role_spec_is(const char *text);
/* `text` passed role_spec_is(). *command: borrowed from it. 0, CTRUN_E_USAGE. */
int role_spec_parse(struct ct_role *out, const char **command, const char *text,
                    struct ctrun_error *err);
/* --role-restarts NAME=N,...: sets counts[i], ROLE_SPEC_UNSET before, where roles[i] has that name.
 * 0, CTRUN_E_USAGE. */
int role_spec_parse_restarts(int64_t counts[CT_ROLES_MAX],
                             const struct ct_role_list *roles, const char *text,
                             struct ctrun_error *err);
