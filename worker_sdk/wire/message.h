/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between an agent and the rendezvous server, and between a worker and its agent.
 *
 *   agent                               server
 *     HELLO  ───────────────────────────▶        who I am, which run
 *            ◀──── CHALLENGE, PROOF, SERVER_PROOF ────▶   with a token only: see auth.h
 *            ◀─────────────────────── WELCOME    limits; or REFUSE and close
 *     JOIN   ───────────────────────────▶        ready for the next round
 *            ◀─────────────────────── WAITING    who is missing, when it changes, for people
 *            ◀─────────────────────── MEMBERS    to group rank 0: who may use its store
 *            ◀─────────────────────── START      the round is complete: ranks, store, count
 *     HEARTBEAT ────────────────────────▶        each second; HEARTBEAT_ACK comes back
 *     FAILURE ──────────────────────────▶        a worker failed on its own account
 *            ◀─────────────────────── STOP       to all: end your workers, here is why
 *     STOPPING ─────────────────────────▶        at once: I live, and have your STOP
 *     STOPPED ──────────────────────────▶        all my workers are gone; then JOIN again
 *     SUCCEEDED ────────────────────────▶        all my workers ended with 0
 *            ◀─────────────────────── VERDICT    the run is over: outcome, cause, exit code
 *     LEAVE  ───────────────────────────▶        I go (signal, drain); the run need not end
 *     CLOSE  ───────────────────────────▶        end the run for everyone
 *
 * A connection may break and the membership go on: with WELCOME comes a TICKET, and an agent that
 * connects again sends RESUME, which names it, in front of its HELLO.
 *
 *     RESUME, HELLO ────────────────────▶        the member that I was; also to a restarted server
 *            ◀─────────────────────── WELCOME, RESUMED, then what was missed: START, STOP, VERDICT;
 *                                     or REFUSE E_LEADER_LOST: this membership has ended
 *
 * The agent then says again what may have been lost: FAILURE, STOPPING, STOPPED, SUCCEEDED, JOIN;
 * each counts once however often it comes. Who has not resumed when its lease ends is lost.
 *
 * HEARTBEAT goes out from WELCOME on, in every state: an agent that sends nothing at all for
 * lost_after_ms is gone for the server. The other way round, lost_after_ms after it sent the
 * last HEARTBEAT that was acknowledged an agent has no living worker any more: before that the
 * server starts no world without it, so that two never live at once. A member that gets STOP
 * answers STOPPED even when it has no worker left (it SUCCEEDED before), then JOINs again
 * unless STOP was final. A STOP that is UNDECIDED is followed by a second one with the decision,
 * also to those who have joined again by then: whether the failure that it names is the cause, or
 * the consequence of a lost node, is known when every member has answered STOPPING or is lost.
 * After LEAVE it still sends STOPPED once its workers are gone; a connection that ends without it
 * counts as broken. VERDICT may come at any time, also while waiting for START.
 *
 * Paused is not dead. After WELCOME an agent says PEER with the port of its end of the
 * connection. When the server sees the same port, nothing stands between the two kernels, and
 * what one acknowledges the other one's host has got; it answers with the port of its own end
 * seen from there. From then on a member that is silent for four fifths of lost_after_ms gets
 * another PEER. If its host has not acknowledged that by the end of lost_after_ms, it is lost; if
 * it has, the host lives and the agent is paused (SIGSTOP, a full disk, a debugger): it gets
 * another PEER every fifth, for CT_PAUSE_LEASES leases at most. Its guard ends the workers when
 * nothing came in for two fifths of a lease (agent/fence.h), so no world starts before half a
 * lease has passed since the last PEER. The other way round, a server whose host acknowledges
 * every heartbeat is paused too: it reads them before it counts anybody as lost, so an agent
 * keeps its workers for four fifths of that time.
 *
 * Every message of a round carries its generation; one of another generation is ignored. One
 * struct a kind, fields in wire order, fixed capacities: nothing is allocated. Kinds and field
 * orders are numbered for ever (tests/unit/message_test.c holds golden bytes). */
#ifndef CT_WIRE_MESSAGE_H
#define CT_WIRE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/base/addr.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/wire/frame.h"
#include "worker_sdk/wire/layout.h"

enum ct_message_kind {
    CT_MESSAGE_HELLO = 1,
    CT_MESSAGE_WELCOME = 2,
    CT_MESSAGE_REFUSE = 3,
    CT_MESSAGE_CHALLENGE = 4, /* 4 to 7: authentication, see auth.h */
    CT_MESSAGE_PROOF = 5,
    CT_MESSAGE_SERVER_PROOF = 6,
    CT_MESSAGE_JOIN = 8,
    CT_MESSAGE_WAITING = 9,
    CT_MESSAGE_START = 10,
    CT_MESSAGE_HEARTBEAT = 11,
    CT_MESSAGE_HEARTBEAT_ACK = 12,
    CT_MESSAGE_FAILURE = 13,
    CT_MESSAGE_STOP = 14,
    CT_MESSAGE_STOPPED = 15,
    CT_MESSAGE_SUCCEEDED = 16,
    CT_MESSAGE_VERDICT = 17,
    CT_MESSAGE_LEAVE = 18,
    CT_MESSAGE_CLOSE = 19,
    CT_MESSAGE_STOPPING = 20,
    CT_MESSAGE_RESUME = 21,
    CT_MESSAGE_RESUMED = 22,
    CT_MESSAGE_TICKET = 23,
    CT_MESSAGE_MEMBERS = 28,
    CT_MESSAGE_OFFER = 29,  /* beside HELLO and CHALLENGE, see auth.h */
    CT_MESSAGE_SEALED = 30, /* its body is ciphertext, see seal.h: not for this codec */
    CT_MESSAGE_PEER = 25,   /* both ways: see "Paused" */
    CT_MESSAGE_RESIZE = 26, /* both ways: asked by one, told to all */
    CT_MESSAGE_DRAIN = 27,  /* both ways: asked by one, told to whom it is for */
    CT_MESSAGE_SIGNAL =
        40, /* either way: the run was sent a signal, all nodes pass it on */
    CT_MESSAGE_ROSTER = 41, /* 41 to 43: who goes on without the host, see takeover.h */
    CT_MESSAGE_ECHO = 42,
    CT_MESSAGE_CLAIM = 43,
    CT_MESSAGE_RESTART =
        44, /* both ways: asked by one, who gets an answer; all get a STOP */
    /* worker to agent and back, over the agent's Unix socket */
    CT_MESSAGE_WORKER_HELLO = 32,
    CT_MESSAGE_WORKER_STEP = 33,
    CT_MESSAGE_WORKER_SHOULD_STOP = 34,
    CT_MESSAGE_WORKER_CRASH_RECORD = 35, /* with a descriptor: see crash.h */
    /* ctrunctl to agent and back, over the agent's other Unix socket */
    CT_MESSAGE_CTL_REQUEST = 48,
    CT_MESSAGE_CTL_REPLY = 49,
};

enum {
    CT_RUN_ID_MAX = 256,
    CT_ROLE_MAX = 64,
    CT_ROLES_MAX = 8, /* on one node */
    CT_REASON_MAX = 1024,
    CT_FACTS_MAX = 1024,
    CT_MISSING_MAX = 1024,
    CT_MESSAGE_ADDRS_MAX = 8,
    CT_MEMBER_KEYS_MAX = 255,
    CT_ROSTER_NODES_MAX = 16,
    CT_ROSTER_ADDRS_MAX = 4,
    CT_MEMBER_KEY_BYTES = 16,
    CT_OFFER_KEY_BYTES = 32,
    CT_CREDENTIAL_MAX = 1024,
    CT_FAILURES_MAX = 16,
    CT_NONCE_BYTES = 32,
    CT_PROOF_BYTES = 32,
    CT_PAUSE_LEASES = 6, /* how long the paused are waited for, in lost_after_ms */
};

/* Why a worker ended; on the wire as u8. */
enum ct_cause {
    CT_CAUSE_NONE = 0,      /* ended with 0, or still running */
    CT_CAUSE_EXIT = 1,      /* a code of its own: `code` */
    CT_CAUSE_SIGNAL = 2,    /* `code` is the signal */
    CT_CAUSE_OOM = 3,       /* SIGKILL by the kernel for memory, proven */
    CT_CAUSE_EXEC = 4,      /* never ran: `code` is the errno of execve or chdir */
    CT_CAUSE_STOPPED = 5,   /* we ended it: a consequence, no cause; `code` as SIGNAL */
    CT_CAUSE_NODE_LOST = 6, /* the node is silent or its connection broke */
    CT_CAUSE_UNKILLABLE = 7, /* survived SIGKILL */
    CT_CAUSE_JOIN_TIMEOUT = 8,
    CT_CAUSE_AGENT = 9,  /* the agent itself could not go on; `text` says why */
    CT_CAUSE_HANG = 10,  /* stuck: no step for too long; `code` says how sure that is */
    CT_CAUSE_EARLY = 11, /* ended with 0 while others still ran: no failure, but told */
    CT_CAUSE_UNREACHABLE = 12, /* no way from this node to group rank 0: agent/way.h */
    CT_CAUSE_LAST = CT_CAUSE_UNREACHABLE,
};

/* One thing that went wrong, as every node shows it. */
struct ct_failure {
    uint64_t generation;
    uint8_t cause; /* enum ct_cause */
    int32_t code;  /* exit code, signal or errno */
    int32_t rank;  /* global; -1: the node as a whole */
    int32_t local_rank;
    int32_t node_rank;
    int32_t pid;
    uint32_t restart_count;
    uint64_t wall_ns;   /* the node's clock, for people */
    uint64_t uptime_ms; /* how long the worker ran */
    int64_t step;       /* last one told to the agent; -1: none */
    char host[CT_HOST_MAX];
    char error_file[512];     /* path on that host; empty: none was written */
    char text[CT_REASON_MAX]; /* of the error file, or the last lines of output */
    uint8_t is_early; /* right after the start: twice the same is a crash loop */
    /* What its node found out: lines "label\ttext\n", shown as they are on every node. */
    char facts[CT_FACTS_MAX];
    /* FAILURE, STOPPED: how long ago it happened when this was sent; 0: not known. VERDICT has none. */
    uint64_t age_ms;
    /* VERDICT: how much later than the root cause it happened, for certain; else 0. */
    uint64_t later_ms;
    /* Not on the wire: when it happened at the latest, by the monotonic clock of who holds
     * this, and how much earlier it may have been; 0: not known. */
    uint64_t happened_ms;
    uint64_t doubt_ms;
};

/* agent -> server */
struct ct_hello {
    char run_id[CT_RUN_ID_MAX];
    char host[CT_HOST_MAX]; /* this node's name, for people */
    int32_t pid;
    uint32_t min_nodes;
    uint32_t max_nodes;
    uint32_t max_restarts;
    uint64_t join_timeout_ms;
    uint64_t last_call_ms;
    uint64_t heartbeat_ms;         /* period */
    uint64_t lost_after_ms;        /* silence that makes a node lost */
    uint8_t nonce[CT_NONCE_BYTES]; /* zero: this agent has no token */
    uint32_t node_unit; /* worlds of a multiple of so many nodes; 0 or 1: any number */
};

/* server -> agent */
struct ct_challenge {
    uint8_t nonce[CT_NONCE_BYTES];
};

/* PROOF by the agent, SERVER_PROOF by the server */
struct ct_proof {
    uint8_t proof[CT_PROOF_BYTES];
};

/* server -> agent; the run's settings are those of its first member */
struct ct_welcome {
    uint64_t heartbeat_ms;
    uint64_t lost_after_ms;
    char seen_as[CT_ADDR_TEXT_MAX]; /* where the server sees the agent, no port */
    uint64_t wall_ns;               /* the server's clock, for people */
};

struct ct_refuse {
    int32_t code;    /* CTRUN_E_VERSION, _WRONG_RUN, _CLOSED, _FINGERPRINT, ... */
    uint8_t version; /* the server's */
    char text[CT_REASON_MAX];
};

/* Some of a node's workers; by local rank they follow one another in the order of the list. */
struct ct_role {
    char name[CT_ROLE_MAX];
    uint32_t slots;
};

struct ct_role_list {
    uint8_t count; /* 0: all workers have the same one, which has another place */
    struct ct_role list[CT_ROLES_MAX];
};

/* Where the role of one node is among those of that name on all nodes. */
struct ct_role_place {
    uint32_t rank_base;
    uint32_t world_size;
};

struct ct_join {
    uint32_t slots;         /* workers this node will run */
    int32_t node_rank_hint; /* SLURM_NODEID or --node-rank; -1: none */
    uint8_t is_endpoint;    /* owns the endpoint's address: first, unless hinted */
    uint16_t store_port;    /* a worker-store listener, bound already and empty */
    uint64_t fingerprint;   /* of what all nodes must share: launcher/fingerprint.h */
    char role[CT_ROLE_MAX];
    char local_addr[CT_HOST_MAX]; /* --local-addr; empty: choose among what follows */
    uint8_t addr_count;
    char addrs[CT_MESSAGE_ADDRS_MAX][CT_ADDR_TEXT_MAX]; /* numeric, no port */
    uint64_t program; /* a hash of what the workers execute; 0: it could not be read */
    struct ct_role_list
        roles; /* none: `role` is that of all; left out on the wire then */
};

struct ct_waiting {
    uint32_t joined;
    uint32_t min_nodes;
    uint32_t max_nodes;
    uint64_t left_ms;   /* until the join deadline */
    uint8_t is_standby; /* the run is full; our place in the reserve, from 1 */
    char missing[CT_MISSING_MAX]; /* names that were seen before and are not here now */
};

struct ct_start {
    uint64_t generation;
    uint32_t restart_count;
    uint32_t group_rank;
    uint32_t group_world_size;
    uint32_t rank_base;
    uint32_t world_size;
    uint32_t role_rank_base;
    uint32_t role_world_size;
    uint16_t master_port;
    char master_addr[CT_HOST_MAX];
    char master_host[CT_HOST_MAX]; /* group rank 0's node, for people */
    uint8_t addr_count; /* its other addresses: where master_addr is no way */
    char addrs[CT_MESSAGE_ADDRS_MAX][CT_ADDR_TEXT_MAX];
    char layout[CT_LAYOUT_MAX]; /* "8+8+7": workers of each node; for people */
    char unlike[256];   /* to group rank 0: nodes with another program; for people */
    uint8_t role_count; /* as in JOIN, and in its order; left out on the wire when 0 */
    struct ct_role_place roles[CT_ROLES_MAX];
};

/* server -> group rank 0's agent, before its START: the addresses that the workers of this round
 * come from, as ct_addr_key() has them, in as many pieces as it takes */
struct ct_members {
    uint64_t generation;
    uint8_t is_last; /* nothing follows */
    uint8_t count;
    uint8_t keys[CT_MEMBER_KEYS_MAX][CT_MEMBER_KEY_BYTES];
};

/* agent -> server before HELLO, server -> agent before CHALLENGE; without needs it is left out */
struct ct_offer {
    uint8_t key[CT_OFFER_KEY_BYTES];    /* for a sealed link; zero: none is asked for */
    uint8_t has_munge;                  /* agent: I can read a credential */
    char credential[CT_CREDENTIAL_MAX]; /* server: this is the one */
};

struct ct_heartbeat { /* and its acknowledgement: the same fields come back */
    uint64_t generation;
    uint64_t sequence;
    int64_t step; /* smallest step of the node's workers; -1: none */
};

enum ct_stop_reason {
    CT_STOP_FAILURE = 1, /* somewhere a worker failed */
    CT_STOP_NODE_LOST = 2,
    CT_STOP_MEMBERSHIP = 3, /* a newcomer, or a member left */
    CT_STOP_CLOSED = 4,     /* the run is over: a verdict follows */
    CT_STOP_UNDECIDED = 5,  /* a worker failed; a second STOP tells what follows */
    CT_STOP_ASKED = 6,      /* for a new round, by RESTART; costs nothing */
};

struct ct_stop {
    uint64_t generation;
    uint8_t reason;   /* enum ct_stop_reason */
    uint8_t is_final; /* no further round: VERDICT will follow, do not join again */
    uint32_t restart_count; /* of the next round */
    uint32_t max_restarts;
    struct ct_failure
        cause; /* cause == CT_CAUSE_NONE when nothing failed; `host` and `text`
                                then say who left or asked and why, if anybody did */
};

struct ct_stopped {
    uint64_t generation;
    uint8_t failure_count; /* workers that ended badly, those we stopped included */
    struct ct_failure failures[CT_FAILURES_MAX];
};

struct ct_succeeded {
    uint64_t generation;
};

struct ct_stopping {
    uint64_t generation;
};

/* The limits of the run, for the next rounds; a world that is too large or may grow ends. */
struct ct_resize {
    uint32_t min_nodes;
    uint32_t max_nodes;
    char by[CT_HOST_MAX]; /* who asked, for people; the server fills it in */
};

/* Save, end your workers, leave. Who asked gets an answer of the same kind, before anything that is
 * for itself. */
struct ct_drain {
    char host[CT_HOST_MAX]; /* whose agents; empty: all of the run */
    char reason[128];
    uint32_t ticket; /* of the request, comes back with its answer; 0: none is wanted */
    uint8_t is_answer;
    uint32_t told;              /* answer: so many agents hear it */
    char hosts[CT_MISSING_MAX]; /* answer, when nobody does: those that there are */
};

/* A new round, on the same nodes. */
struct ct_restart {
    char reason[128];
    uint32_t ticket; /* of the request, comes back with its answer; 0: none is wanted */
    uint8_t is_answer;
    uint64_t generation; /* answer: of the world that stops for it; 0: none does, */
    char refusal[128];   /* and why */
};

/* agent -> server: the port of the agent's own end; server -> agent: that of the agent's end as
 * the server sees it */
struct ct_peer {
    uint16_t port;
};

enum ct_outcome {
    CT_OUTCOME_SUCCEEDED = 1,
    CT_OUTCOME_FAILED = 2, /* a worker failed and no restart was left */
    CT_OUTCOME_JOIN_TIMEOUT = 3,
    CT_OUTCOME_NODES_LOST = 4, /* fewer than min nodes are left and none came in time */
    CT_OUTCOME_CLOSED = 5,     /* somebody ended the run */
    CT_OUTCOME_CRASH_LOOP = 6, /* failed twice in the same way right after the start */
};

struct ct_verdict {
    uint64_t generation;
    uint8_t outcome;   /* enum ct_outcome */
    uint8_t exit_code; /* what every launcher of the run ends with */
    uint32_t restart_count;
    uint8_t
        failure_count; /* [0] is the root cause, the others as rendezvous/failures.h says */
    struct ct_failure failures[CT_FAILURES_MAX];
};

struct ct_leave {
    uint64_t generation;
    char reason[CT_REASON_MAX];
};

struct ct_close {
    uint8_t exit_code;
    char reason[CT_REASON_MAX];
};

/* server -> agent, behind WELCOME: what RESUME must name. */
struct ct_ticket {
    uint64_t id;  /* the member's, by order of arrival */
    uint64_t key; /* not to be guessed; never 0 */
};

enum ct_resume_state {
    CT_RESUME_JOINING = 1,   /* no worker; JOIN was sent, or is about to be */
    CT_RESUME_RUNNING = 2,   /* workers of `generation` are alive */
    CT_RESUME_STOPPING = 3,  /* they are being ended */
    CT_RESUME_STOPPED = 4,   /* all of them are gone; the server's word is missing */
    CT_RESUME_SUCCEEDED = 5, /* they ended with 0 */
};

/* agent -> server, in front of HELLO */
struct ct_resume {
    uint64_t id;
    uint64_t key;
    uint64_t generation; /* of the last START that this agent got; 0: none */
    uint8_t state;       /* enum ct_resume_state */
};

/* server -> agent, behind WELCOME */
struct ct_resumed {
    uint64_t
        generation; /* of the last START it was sent; above the agent's: it comes again */
    uint8_t is_in_world; /* workers of it count as alive: STOPPED has not arrived */
};

/* agent -> server -> the other agents of the world */
struct ct_signal {
    uint64_t generation;
    int32_t signal;         /* SIGUSR1 or SIGUSR2 */
    uint32_t count;         /* agent/signal_once.h */
    char host[CT_HOST_MAX]; /* whose agent got it; the server knows better */
};

struct ct_roster_node {
    uint64_t key;  /* of its launcher, see CLAIM; 0: it cannot serve */
    uint16_t port; /* where it would serve */
    char host[CT_HOST_MAX];
    uint8_t addr_count;
    char addrs[CT_ROSTER_ADDRS_MAX][CT_ADDR_TEXT_MAX];
};

/* server -> members of a running world, in as many pieces as it takes: who they are, by group
 * rank; total 0: nobody is to go on without this server */
struct ct_roster {
    uint64_t generation;
    uint32_t min_nodes;
    uint16_t total;
    uint16_t first;  /* rank of the first in this piece */
    uint16_t leader; /* rank of the server's own node */
    uint8_t count;
    struct ct_roster_node nodes[CT_ROSTER_NODES_MAX];
};

/* server -> agent, and the same back with the agent's generation */
struct ct_echo {
    uint64_t time_ms;    /* the server's clock */
    uint64_t server;     /* another one each time that a server begins to serve */
    uint64_t generation; /* of the last START that this agent got */
    uint8_t
        is_held; /* the next round waits: others may have gone on without this server */
};

/* agent -> server, before JOIN */
struct ct_claim {
    uint64_t key;          /* random, this launcher's for life */
    uint16_t port;         /* where it would serve; 0: nowhere */
    uint64_t generation;   /* of the last roster it has; 0: none */
    uint64_t server;       /* whose ECHO it has heard last; 0: none */
    uint64_t age_ms;       /* since then */
    uint64_t world;        /* generation of the last START that it ever got; 0: none */
    uint64_t world_server; /* who sent that */
};

/* worker -> agent; the agent knows the peer's pid from the socket */
struct ct_worker_hello {
    int32_t rank;
    uint64_t generation;
};
struct ct_worker_step {
    uint64_t step;
};
struct ct_worker_crash_record {
    uint32_t size; /* of struct ct_crash, as the worker knows it */
};
/* agent -> worker */
struct ct_worker_should_stop {
    char reason[128];
};

/* ctrunctl -> agent; on the wire as u8 */
enum ct_ctl_verb {
    CT_CTL_STATUS = 1,
    CT_CTL_SIGNAL = 2,  /* to the workers: `signal`, `rank` */
    CT_CTL_STOP = 3,    /* save and end: `reason` */
    CT_CTL_RESIZE = 5,  /* `signal` to `rank` nodes */
    CT_CTL_DRAIN = 6,   /* `reason`: HOST, a blank, why; no host: all nodes */
    CT_CTL_WHY = 8,     /* the first cause of the last stop */
    CT_CTL_RESTART = 9, /* a new round: `reason` */
};

struct ct_ctl_request {
    uint8_t verb;
    int32_t signal;
    int32_t rank; /* -1: all of this node */
    char reason[128];
};

/* agent -> ctrunctl; a long text comes in pieces, which belong together up to is_last */
struct ct_ctl_reply {
    int32_t code;    /* 0: text is JSON; negative: text says what was wrong */
    uint8_t is_last; /* nothing follows */
    char text[16384];
};

struct ct_message {
    enum ct_message_kind kind;
    union {
        struct ct_hello hello;
        struct ct_welcome welcome;
        struct ct_refuse refuse;
        struct ct_challenge challenge;
        struct ct_proof proof;
        struct ct_join join;
        struct ct_waiting waiting;
        struct ct_start start;
        struct ct_heartbeat heartbeat;
        struct ct_failure failure;
        struct ct_stop stop;
        struct ct_stopped stopped;
        struct ct_succeeded succeeded;
        struct ct_verdict verdict;
        struct ct_leave leave;
        struct ct_close close;
        struct ct_stopping stopping;
        struct ct_ticket ticket;
        struct ct_resume resume;
        struct ct_resumed resumed;
        struct ct_members members;
        struct ct_offer offer;
        struct ct_peer peer;
        struct ct_resize resize;
        struct ct_drain drain;
        struct ct_restart restart;
        struct ct_signal signal;
        struct ct_roster roster;
        struct ct_echo echo;
        struct ct_claim claim;
        struct ct_worker_hello worker_hello;
        struct ct_worker_step worker_step;
        struct ct_worker_should_stop worker_should_stop;
        struct ct_worker_crash_record worker_crash_record;
        struct ct_ctl_request ctl_request;
        struct ct_ctl_reply ctl_reply;
    };
};

/* Begins a message: sets its kind, zeroes the fields of that kind and touches no others, of which
 * there are 45 KiB. */
void ct_message_init(struct ct_message *message, enum ct_message_kind kind);
/* Appends the message as one frame. 0, -EMSGSIZE, -ENOBUFS, -ENOMEM. */
int ct_message_encode(struct ct_buf *out, const struct ct_message *message);
/* Decodes the body of a frame of our version. 0, -EBADMSG (malformed), -ENOSYS (kind unknown:
 * a newer peer; skip it). */
int ct_message_decode(const struct ct_frame *frame, struct ct_message *out);
/* "JOIN", for logs. Static. */
const char *ct_message_name(int kind);
const char *ct_cause_name(int cause); /* "signal", "oom", ...; for events and logs */

#endif
