/* SPDX-License-Identifier: Apache-2.0 */
/* --stage on one host of a --hosts run: takes the manifest, says what is missing here, takes
 * that, and knows for this host's ctrun where it lies. See fleet_stage.h for the whole way.
 *
 *     (STAGE ...) ──last piece──> CHECKING ──NEED──> TAKING ──STAGED──> whole
 *                                     └────────────────┴── FAILED: nothing more is taken
 */
#ifndef LAUNCHER_FLEET_INTAKE_H
#define LAUNCHER_FLEET_INTAKE_H

#include "agent/loop.h"
#include "launcher/fleet_job.h"
#include "launcher/fleet_message.h"
#include "launcher/stage_manifest.h"
#include "worker_sdk/base/env.h"

struct fleet_intake;

struct fleet_intake_options {
    struct loop *loop;
    const struct fleet_job *job; /* kept */
    uint32_t place;              /* of this host */
    void *context;
    /* NEED, STAGING, STAGED; FAILED. */
    void (*on_message)(void *context, const struct fleet_message *message);
};

struct fleet_intake *fleet_intake_open(const struct fleet_intake_options *options);
/* STAGE or PIECE. */
void fleet_intake_take(struct fleet_intake *intake,
                       const struct fleet_message *message);
/* No more news: the run begins. NULL is fine. */
void fleet_intake_rest(struct fleet_intake *intake);
/* The environment and the command line of this host's ctrun with the copies. 0: as they were;
 * 1: *argv has become a list of borrowed words, which the caller frees; -ENOMEM. NULL is fine. */
int fleet_intake_apply(const struct fleet_intake *intake, struct ct_env *env,
                       char ***argv);
/* The copies may be changed by others from now on. NULL is fine. */
void fleet_intake_close(struct fleet_intake *intake);

#endif
