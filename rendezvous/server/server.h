/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous server: rounds, worker stores and their listeners on one libuv loop.
 *
 * ctrund runs a server on its main thread. ctrun runs a server on an own thread and talks to it
 * through sockets like any other agent; only opening and closing listeners and stores goes through
 * the calls below, which may be made from any thread and block for one turn of the loop at most.
 *
 *     server_create ── server_start ── server_listen / server_open_store ... ── server_destroy
 *                  └─ server_run (ctrund: returns after server_stop or a signal) */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/net/port_range.h"
#include "worker_sdk/wire/auth.h"

struct output_commit;
struct ha_hooks;
struct journal_book;
struct journal_sink;
struct server;

struct server_options {
    /* The only run that is served; a HELLO for another run is refused, with both ids. Copied. NULL:
     * any number of runs, and one TCPStore for stock clients at the endpoint (ctrund). */
    const char *run_id;
    /* Static backend: the endpoint is the worker store. At each START the server puts a new,
     * empty TCPStore behind the port of server_listen() and drops the clients of the old one;
     * START names that port instead of the JOIN's store_port. So that MASTER_ADDR:MASTER_PORT
     * is --master-addr:--master-port, node rank 0, which runs this server, joins with
     * local_addr = --master-addr as typed, and its store_port may be anything but 0: no other
     * store needs to be opened. */
    bool endpoint_is_store;
    /* Borrowed. Agents must prove this token, and the server proves it to them
     * (worker_sdk/wire/auth.h). ctrund then serves no stock TCPStore clients, as these cannot prove
     * it. NULL or empty: agents without a token are accepted, agents with one refused. */
    const struct ct_auth_token *token;
    bool uses_munge; /* instead of a token: worker_sdk/wire/munge.h */
    /* Without a secret: agents of other users of this machine may join, too. In ctrund they always may. */
    bool accepts_anybody;
    bool wants_seal; /* agents that do not ask for an encrypted link are refused */
    /* Borrowed; NULL: the runs end with this server. Messages are sent to agents only after the
     * journal has the step. */
    const struct journal_sink *journal;
    /* Runs of a server before this one, restored; server_create() takes them. May be NULL. */
    struct journal_book *book;
    /* Borrowed; NULL: this server serves at once. Else agents are refused until server_lead(), and
     * messages to agents are held in it until they may be sent. */
    struct output_commit *commit;
    const char *const
        *expected; /* borrowed: hosts that should join, for messages; may be NULL */
    size_t expected_count;
    /* Borrowed: of each of these hosts, where each task is an agent; NULL: one agent each. */
    const int *expected_tasks;
    const char *host; /* copied; shown name of this machine; NULL: its host name */
    /* Borrowed; NULL: agents' reports on the run's own etcd are dropped (ha_relay.h). */
    const struct ha_hooks *ha;
    struct ct_port_range ports; /* instead of port 0, for listeners of all kinds */
    /* Where worker stores listen, port 0; copied. NULL: on all addresses, v4 and v6. */
    const struct ct_addr *store_addr;
    /* Worker stores accept only the nodes of their round. Those of server_open_store() get the list
     * from server_admit(); the endpoint (static backend) knows the nodes by itself. */
    bool guards_stores;
    /* Workers of an earlier server, of which nothing else is known, may live since this time; 0:
     * none. */
    uint64_t held_from_ms;
    size_t conns_max; /* 0: SERVER_CONNS_MAX */
};

/* options may be NULL: all zero. */
int server_create(struct server **out, const struct server_options *options,
                  struct ctrun_error *err);
/* Runs the loop on a new thread until server_destroy(). Does nothing if the thread runs already. */
int server_start(struct server *server, struct ctrun_error *err);
/* Runs the loop on this thread until server_stop(). */
int server_run(struct server *server, struct ctrun_error *err);
void server_stop(struct server *server); /* any thread, async-signal-safe */
/* Stops the server and waits for its end; the calls below do nothing from then on. */
void server_join(struct server *server);
/* After server_join(): held_from_ms for the next server. */
uint64_t server_outlived_from_ms(const struct server *server);
void server_destroy(struct server *server);
/* The most connections at a time, and how many of them are kept for HTTP and for answers to those
 * that are refused. */
size_t server_conns_max(const struct server *server, size_t *reserve);

/* With an output commit: serves from now on, in a term above those of all earlier servers, and
 * continues the runs in the journal (frames of journal.h, length 0: none). No heartbeat that was
 * sent after `served_ms` has been acknowledged. 0, -EBADMSG, -ENOMEM. */
int server_lead(struct server *server, uint64_t term, const void *journal,
                size_t length, uint64_t served_ms, struct ctrun_error *err);
/* Another node serves now: forgets all runs without a message to agents, and refuses agents. */
void server_step_down(struct server *server);
/* Sends the plan of the run's own etcd to all its agents. */
void server_send_ha(struct server *server, const struct ct_ha_plan *plan);
/* Held messages may be sent by now. Any thread, does not wait. */
void server_poke(struct server *server);

/* Accepts agents (and, on the same port, HTTP and TCPStore clients) at addr; port 0 chooses. *port
 * is the port in use (may be NULL). The addr is bound as it is; 0.0.0.0 and :: both mean all
 * addresses of this machine, v4 and v6. Before or after server_start(). CTRUN_E_PORT_BUSY if
 * another process has the port; err names it if possible. */
int server_listen(struct server *server, const struct ct_addr *addr, uint16_t *port,
                  struct ctrun_error *err);

/* Opens a listener on a free port with a new, empty TCPStore behind it; *store identifies it. The
 * store lives until it is closed, and is never reused. */
int server_open_store(struct server *server, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err);
/* Adds a part of the list of nodes, from MEMBERS; connections wait until the last part. */
void server_admit(struct server *server, uint64_t store,
                  const struct ct_members *members);
/* True if the store is open and has had no request yet. */
bool server_store_is_unused(struct server *server, uint64_t store);
/* What happened in a worker store; times are those of a watched one, 0: not yet. */
struct server_store_marks {
    uint64_t met_ms;   /* `world` ranks have counted themselves, as torch's do */
    uint64_t asked_ms; /* the last request that did more than look for keys */
    uint64_t
        ranks; /* that have counted themselves so far; also in a store that is not watched */
    struct ct_addr last, local; /* the last rank that arrived, and our end */
};
/* Watches the store from now on: `met_fd`, a borrowed eventfd, is written once `world` ranks have
 * met. */
void server_watch_store(struct server *server, uint64_t store, uint32_t world,
                        int met_fd);
/* store 0: that of the endpoint (endpoint_is_store). */
void server_get_store_marks(struct server *server, uint64_t store,
                            struct server_store_marks *out);
/* Closes listener and connections and frees the values: asynchronous, but before any later call
 * runs. */
void server_close_store(struct server *server, uint64_t store);
