/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of a launch share; nobody else includes it.
 *
 *     launch.c         from a configuration to an agent
 *     launch_serve.c   the server in this process: the rendezvous when it is ours, worker stores
 *     launch_pmi.c     how the nodes find it through srun's PMI
 *     launch_say.c     what people hear meanwhile
 *     launch_restart.c a worker that is started again alone
 *     launch_end.c     what they hear at the end, summary.json, the exit code */
#ifndef LAUNCHER_LAUNCH_PRIVATE_H
#define LAUNCHER_LAUNCH_PRIVATE_H

#include "agent/agent.h"
#include "launcher/addresses.h"
#include "launcher/candidacy.h"
#include "launcher/hosts.h"
#include "launcher/launch.h"
#include "launcher/logdir_aside.h"
#include "launcher/role_restarts.h"
#include "launcher/route.h"
#include "launcher/torch_events.h"
#include "launcher/why.h"
#include "rendezvous/server.h"

struct launch {
    const struct config *config;
    struct hosts hosts;
    struct addresses addresses;
    struct route route; /* of this round */
    char said_route[CT_ADDR_TEXT_MAX];
    bool has_said_place;
    bool has_said_own;
    struct server *server;       /* NULL until something has to be listened for */
    struct candidacy *candidacy; /* backend etcd; else NULL */
    struct logdir_aside logdir;
    struct torch_events torch_events;
    struct role_restarts role_restarts;
    struct ct_waiting waiting; /* the last one, for the summary */
    uint64_t waited_ms;
    uint64_t said_ms;
    uint64_t born_ms;
    bool has_said_omp;
    char said_layout[CT_LAYOUT_MAX];
    bool is_ending;        /* a signal has ended the run here */
    struct why why;        /* the first cause of the last stop */
    bool hosts_rendezvous; /* in this process */
    struct ct_claim
        claim;         /* key 0: no node may go on when the rendezvous' node is lost */
    char *leftovers;   /* that were killed, to be told behind the cause; NULL: none */
    bool has_returned; /* the rendezvous was lost: tell the new place */
};

/* ---- launch_restart.c ------------------------------------------------------------------ */

/* agent_options.restarts_alone; context: struct launch. */
bool launch_restarts_alone(void *context, const struct ct_start *start,
                           const struct ct_failure *failure);

/* ---- launch_serve.c -------------------------------------------------------------------- */

/* Serves, or finds out that somebody of ours does. 0, CTRUN_E_PORT_BUSY and what was
 * printed. */
int launch_host_rendezvous(struct launch *launch, struct ctrun_error *err);
/* At the derived port, or a free one where somebody has that. */
int launch_serve_anywhere(struct launch *launch, uint16_t *port,
                          struct ctrun_error *err);
void launch_fill_stores(const struct launch *launch, struct agent_options *options);
/* After the agent: what the server says last is kept before it goes. */
void launch_close_server(struct launch *launch);

/* ---- launch_pmi.c ---------------------------------------------------------------------- */

/* 1: serves, or knows who does: `launch` has hosts, `config` the port, and the token if one was
 * made. 0: the PMI cannot be used, which is said; or a code. */
int launch_meet_by_pmi(struct launch *launch, struct config *config,
                       struct ctrun_error *err);

/* ---- launch_say.c ---------------------------------------------------------------------- */

/* What a person could take for a fault later on. */
void launch_say_beginning(const struct config *config);
void launch_fill_words(struct agent_options *options);
/* What workers had left behind: a consequence, for which the first cause is waited. */
void launch_say_leftovers(struct launch *launch);

/* ---- launch_end.c ---------------------------------------------------------------------- */

/* The launcher's own exit code, as torchrun has it when that was asked for. */
int launch_code(const struct config *config, int code);
/* Into the file that TORCHELASTIC_ERROR_FILE names for this launcher, if it does. */
void launch_write_own_error(const struct config *config, const char *message);
/* No round, or none any more. Returns the exit code. */
int launch_fail_to_meet(struct launch *launch, const struct ctrun_error *err);
/* How the agent ended: tells people and programs, returns the exit code. */
int launch_end(struct launch *launch, struct agent_result *result);

#endif
