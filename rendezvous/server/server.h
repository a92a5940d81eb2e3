/* SPDX-License-Identifier: Apache-2.0 */
/* The rendezvous server: rounds, worker stores and their listeners on one libuv loop.
 *
 * ctrund runs one on its main thread. ctrun runs one on a thread of its own and talks to it
 * through sockets like everybody else; only opening and closing listeners and stores goes
 * through the calls below, which may be made from any thread and block for one turn of the
 * loop at most.
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
    /* The only run that is served; a HELLO for another is refused, naming both. Copied. NULL:
     * any number of runs, and one TCPStore for stock clients at the endpoint (ctrund). */
    const char *run_id;
    /* Static backend: the endpoint is the worker store. At each START the server puts a new,
     * empty TCPStore behind the port of server_listen() and drops the clients of the old one;
     * START names that port instead of the JOIN's store_port. So that MASTER_ADDR:MASTER_PORT
     * is --master-addr:--master-port, node rank 0, which runs this server, joins with
     * local_addr = --master-addr as typed, and its store_port may be anything but 0: no other
     * store needs to be opened. */
    bool endpoint_is_store;
    /* Kept. Agents must prove it and are given proof (worker_sdk/wire/auth.h), and ctrund
     * serves no stock TCPStore clients, which cannot. NULL or empty: everybody is let in, but
     * who has a token. */
    const struct ct_auth_token *token;
    bool uses_munge; /* instead of a token: worker_sdk/wire/munge.h */
    bool wants_seal; /* agents that do not ask for an encrypted link are refused */
    /* Kept; NULL: the runs end with this server. Nothing is told to agents before it is there. */
    const struct journal_sink *journal;
    /* Runs of a server before this one, restored; server_create() takes them. May be NULL. */
    struct journal_book *book;
    /* Kept; NULL: it serves from the beginning. Else agents are turned away until server_lead(),
     * and what is sent to them waits in it until it may be sent. */
    struct output_commit *commit;
    const char *const
        *expected; /* kept: hosts that should come, for people; may be NULL */
    size_t expected_count;
    const char *host; /* copied; how people call this machine; NULL: its host name */
    /* Kept; NULL: agents' reports on the run's own etcd are for nobody (ha_relay.h). */
    const struct ha_hooks *ha;
    struct ct_port_range ports; /* instead of port 0, for listeners of all kinds */
    /* Where worker stores listen, port 0; copied. NULL: at all addresses, v4 and v6. */
    const struct ct_addr *store_addr;
    /* Worker stores let in only the nodes of their round: those of server_open_store() wait for
     * server_admit(), the endpoint (static backend) knows them by itself. */
    bool guards_stores;
    /* Since then workers may live of a server that was here before, and of which nothing else is known; 0:
     * none. */
    uint64_t held_from_ms;
    size_t conns_max; /* 0: SERVER_CONNS_MAX */
};

/* options may be NULL: all zero. */
int server_create(struct server **out, const struct server_options *options,
                  struct ctrun_error *err);
/* Runs the loop on a new thread until server_destroy(). */
int server_start(struct server *server, struct ctrun_error *err);
/* Runs the loop on this thread until server_stop(). */
int server_run(struct server *server, struct ctrun_error *err);
void server_stop(struct server *server); /* any thread, async-signal-safe */
/* Stops, and waits until it has; the calls below do nothing from then on. */
void server_join(struct server *server);
/* After that: the next server's held_from_ms. */
uint64_t server_outlived_from_ms(const struct server *server);
void server_destroy(struct server *server);

/* With an output commit. Serves from now on, in a term above those of all servers before, and continues with
 * what the journal (frames of journal.h, length 0: nothing) tells; no heartbeat that was sent after
 * `served_ms` has been acknowledged. 0, -EBADMSG, -ENOMEM. */
int server_lead(struct server *server, uint64_t term, const void *journal,
                size_t length, uint64_t served_ms, struct ctrun_error *err);
/* Another node serves: all runs are forgotten without a word, agents are turned away. */
void server_step_down(struct server *server);
/* The plan of the run's own etcd from now on: told to all its agents. */
struct ct_ha_plan;
void server_send_ha(struct server *server, const struct ct_ha_plan *plan);
/* What is held may go out by now. Any thread, does not wait. */
void server_poke(struct server *server);

/* Accepts agents (and, on the same port, HTTP and TCPStore clients) at addr; port 0 chooses.
 * *port is the port in use (may be NULL). The addr is bound as it is; 0.0.0.0 and :: both mean
 * all addresses of this machine, v4 and v6. Before or after server_start(). CTRUN_E_PORT_BUSY
 * when somebody else has it, naming who if possible. */
int server_listen(struct server *server, const struct ct_addr *addr, uint16_t *port,
                  struct ctrun_error *err);

/* Opens a listener on a free port with a new, empty TCPStore behind it; *store identifies it.
 * It lives until it is closed: nothing else ever uses it. */
int server_open_store(struct server *server, uint16_t *port, uint64_t *store,
                      struct ctrun_error *err);
/* A piece of the list of nodes, from MEMBERS; connections have waited for the last one. */
void server_admit(struct server *server, uint64_t store,
                  const struct ct_members *members);
/* True when it is open and no client has asked it anything yet. */
bool server_store_is_unused(struct server *server, uint64_t store);
/* What a worker store that is watched has seen; 0: not yet. */
struct server_store_marks {
    uint64_t met_ms;   /* `world` ranks have counted themselves in, as torch's do */
    uint64_t asked_ms; /* the last request that was more than a look for keys */
    struct ct_addr last, local; /* who was the last of them to come, and our end */
};
/* From now on: `met_fd`, an eventfd, is kept, and written once they have met. */
void server_watch_store(struct server *server, uint64_t store, uint32_t world,
                        int met_fd);
void server_get_store_marks(struct server *server, uint64_t store,
                            struct server_store_marks *out);
/* Closes listener and connections, frees the values. */
void server_close_store(struct server *server, uint64_t store);
