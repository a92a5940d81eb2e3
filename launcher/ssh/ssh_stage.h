/* SPDX-License-Identifier: Apache-2.0 */
/* --stage: files of the machine where --hosts was typed, on every host, before the run begins.
 *
 *     SCANNING ──all read, all hosts there──> OFFERING ──manifest sent──> ASKING
 *         ──all know what they need──> SENDING ──last byte──> ENDING ──all have all──> over
 *
 * The way. Files travel down the tree of ssh connections that carries the run anyway: no port, no
 * other program, encrypted and authenticated by ssh. The root sends every byte once to each host
 * that it has called itself, at most `fanout` of them; each of these writes it to its disk and
 * sends it on to the hosts that it has called. It goes as fast as the slowest of them takes it:
 * who has more than a megabyte waiting for a connection reads nothing more from above, and the
 * root reads no more of the files. This host, when it is one of the run's, gets its copy too.
 *
 * What is sent. First the manifest (stage_manifest.h) with all names, sizes and checksums. Every
 * host compares it with what it has from earlier runs (stage_store.h) and names the chunks that
 * it needs; only these travel, and only to where they are needed. So a second run sends nothing,
 * one that was cut off continues, and a changed file is all that is sent of a large environment.
 *
 * Where it goes. See stage_slot.h. The copies stay for the next run, unless --stage-remove.
 *
 * Who learns of it. See stage_map.h.
 *
 * Hosts give a sign of life twice a second. When one is silent, or nothing moves, for as long as
 * --hosts-timeout, that is an error which names the hosts. */
#pragma once

#include "agent/loop/loop.h"
#include "launcher/options/option.h"
#include "launcher/ssh/ssh_job.h"
#include "launcher/ssh/ssh_subtree.h"
#include "launcher/stage/stage_manifest.h"
#include "launcher/stage/stage_scan.h"

/* What the command line wants. Zeroed: nothing. */
struct ssh_stage_plan {
    struct stage_manifest manifest;
    struct stage_scan *scan; /* NULL: nothing is staged */
};

/* argv: of the hosts, not the one that was typed. 0, CTRUN_E_USAGE, CTRUN_E_STAGE: a path is
 * missing. */
int ssh_stage_plan(struct ssh_stage_plan *plan, const struct options *options,
                   char *const *argv, const char *cwd, struct ctrun_error *err);
/* --stage without --hosts is refused, with the reason. 0, CTRUN_E_USAGE. */
int ssh_stage_check(const struct options *options, struct ctrun_error *err);
void ssh_stage_plan_deinit(struct ssh_stage_plan *plan);

struct ssh_stage;

struct ssh_stage_options {
    struct loop *loop;
    const struct ssh_job *job;   /* kept */
    struct ssh_stage_plan *plan; /* kept */
    struct ssh_subtree *subtree; /* kept */
    void *context;
    /* A line for people. */
    void (*on_notice)(void *context, const char *text);
    /* All hosts that are still there have everything. */
    void (*on_over)(void *context);
    void (*on_fail)(void *context, const struct ctrun_error *err);
};

/* Begins to read. NULL when memory is short. */
struct ssh_stage *ssh_stage_open(const struct ssh_stage_options *options);
/* All hosts that will be there are there. */
void ssh_stage_begin(struct ssh_stage *stage);
/* A host's NEED, STAGING or STAGED; or FAILED or LOST, after ssh_subtree_state() knows of it. */
void ssh_stage_on_message(struct ssh_stage *stage, const struct ssh_message *message);
/* Connections take bytes again. NULL is fine. */
void ssh_stage_room(struct ssh_stage *stage);
void ssh_stage_close(struct ssh_stage *stage); /* NULL is fine */
