/* SPDX-License-Identifier: Apache-2.0 */
/* --stage: copies files from the machine where --hosts was typed to every host before the run
 * begins.
 *
 *     SCANNING ──all read, all hosts there──> OFFERING ──manifest sent──> ASKING
 *         ──all know what they need──> SENDING ──last byte──> ENDING ──all have all──> over
 *
 * Path. Files are sent down the tree of ssh connections that the run uses anyway: no port, no
 * other program, encrypted and authenticated by ssh. The root sends every byte once to each host
 * that it has called itself, at most `fanout` of them; each of these writes the bytes to its
 * disk and sends them on to the hosts that it has called. The slowest host sets the speed: a
 * process with more than a megabyte queued for a connection reads nothing more from above, and
 * the root reads no more of the files. This machine gets a copy too if it is one of the run's
 * hosts.
 *
 * What is sent. First the manifest (stage_manifest.h) with all names, sizes and checksums. Every
 * host compares it with its copies from earlier runs (stage_store.h) and names the chunks that
 * it needs; only these are sent, and only to the hosts that need them. So a second run sends
 * nothing, an interrupted copy continues, and of a large environment only the changed files are
 * sent.
 *
 * Destination. See stage_slot.h. The copies stay for the next run, unless --stage-remove.
 *
 * How programs find the copies. See stage_map.h.
 *
 * Hosts send a heartbeat twice a second. If a host sends nothing, or there is no progress, for
 * --hosts-timeout, that is an error which names the hosts. */
#pragma once

#include "agent/loop/loop.h"
#include "launcher/options/option.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_subtree.h"
#include "launcher/stage/stage_manifest.h"
#include "launcher/stage/stage_scan.h"

/* What the command line asks to stage. Zeroed: nothing. */
struct ssh_stage_plan {
    struct stage_manifest manifest;
    struct stage_scan *scan; /* NULL: nothing is staged */
};

/* argv: the command line of the hosts, not the typed one. 0, CTRUN_E_USAGE, CTRUN_E_STAGE: a path
 * is missing. */
int ssh_stage_plan(struct ssh_stage_plan *plan, const struct options *options,
                   char *const *argv, const char *cwd, struct ctrun_error *err);
/* Refuses --stage without --hosts, with the reason. 0, CTRUN_E_USAGE. */
int ssh_stage_check(const struct options *options, struct ctrun_error *err);
void ssh_stage_plan_deinit(struct ssh_stage_plan *plan);

struct ssh_stage;

struct ssh_stage_options {
    struct loop *loop;
    const struct ssh_job *job;   /* borrowed */
    struct ssh_stage_plan *plan; /* borrowed */
    struct ssh_subtree *subtree; /* borrowed */
    void *context;
    /* One line to print. */
    void (*on_notice)(void *context, const char *text);
    /* All hosts that are still READY have everything. */
    void (*on_over)(void *context);
    void (*on_fail)(void *context, const struct ctrun_error *err);
};

/* Starts to read the files. NULL when memory is short. */
struct ssh_stage *ssh_stage_open(const struct ssh_stage_options *options);
/* Called when all hosts have answered: from now on the manifest may be sent. */
void ssh_stage_begin(struct ssh_stage *stage);
/* A host's NEED, STAGING or STAGED; or its FAILED or LOST, once ssh_subtree_state() returns it. */
void ssh_stage_on_message(struct ssh_stage *stage, const struct ssh_message *message);
/* Connections have room again. NULL is fine. */
void ssh_stage_room(struct ssh_stage *stage);
void ssh_stage_close(struct ssh_stage *stage); /* NULL is fine */
