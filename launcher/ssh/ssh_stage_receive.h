/* SPDX-License-Identifier: Apache-2.0 */
/* --stage on one host of a --hosts run: receives the manifest, requests the chunks that are missing
 * here, writes them, and gives this host's ctrun the paths of the copies. See ssh_stage.h.
 *
 *     (STAGE ...) ──last piece──> CHECKING ──NEED──> TAKING ──STAGED──> complete
 *                                     └────────────────┴── FAILED: ignores later pieces
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
    const struct ssh_job *job; /* borrowed */
    uint32_t place;            /* of this host */
    void *context;
    /* NEED, STAGING, STAGED or FAILED. */
    void (*on_message)(void *context, const struct ssh_message *message);
};

struct ssh_stage_receive *
ssh_stage_receive_open(const struct ssh_stage_receive_options *options);
/* STAGE or PIECE. */
void ssh_stage_receive_on_message(struct ssh_stage_receive *receive,
                                  const struct ssh_message *message);
/* Called when the run begins: sends no more messages. NULL is fine. */
void ssh_stage_receive_rest(struct ssh_stage_receive *receive);
/* Puts the paths of the copies into the environment and command line of this host's ctrun. 0: *argv
 * is unchanged; 1: *argv is a new list of borrowed words, which the caller frees; -ENOMEM. NULL is
 * fine. */
int ssh_stage_receive_apply(const struct ssh_stage_receive *receive, struct ct_env *env,
                            char ***argv);
/* Gives up the lock: other runs may change the copies from now on. NULL is fine. */
void ssh_stage_receive_close(struct ssh_stage_receive *receive);
