/* SPDX-License-Identifier: Apache-2.0 */
/* --stage on one host of a --hosts run: takes the manifest, says what is missing here, takes
 * that, and knows for this host's ctrun where it lies. See ssh_stage.h for the whole way.
 *
 *     (STAGE ...) ──last piece──> CHECKING ──NEED──> TAKING ──STAGED──> whole
 *                                     └────────────────┴── FAILED: nothing more is taken
 */
#pragma once

#include "agent/loop/loop.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_message.h"
#include "launcher/stage/stage_manifest.h"
#include "worker_sdk/base/env.h"

struct ssh_stage_receive;

struct ssh_stage_receive_options {
    struct loop *loop;
    const struct ssh_job *job; /* kept */
    uint32_t place;            /* of this host */
    void *context;
    /* NEED, STAGING, STAGED; FAILED. */
    void (*on_message)(void *context, const struct ssh_message *message);
};

struct ssh_stage_receive *
ssh_stage_receive_open(const struct ssh_stage_receive_options *options);
/* STAGE or PIECE. */
void ssh_stage_receive_on_message(struct ssh_stage_receive *receive,
                                  const struct ssh_message *message);
/* No more news: the run begins. NULL is fine. */
void ssh_stage_receive_rest(struct ssh_stage_receive *receive);
/* The environment and the command line of this host's ctrun with the copies. 0: as they were;
 * 1: *argv has become a list of borrowed words, which the caller frees; -ENOMEM. NULL is fine. */
int ssh_stage_receive_apply(const struct ssh_stage_receive *receive, struct ct_env *env,
                            char ***argv);
/* The copies may be changed by others from now on. NULL is fine. */
void ssh_stage_receive_close(struct ssh_stage_receive *receive);
