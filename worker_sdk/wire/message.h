/* SPDX-License-Identifier: Apache-2.0 */
/* Messages between an agent and the rendezvous server, and between a worker and its agent.
 *
 *   agent                               server
 *     HELLO  ───────────────────────────▶        this node, and which run
 *            ◀──── CHALLENGE, PROOF, SERVER_PROOF ────▶   with a token only: see auth.h
 *            ◀─────────────────────── WELCOME    limits; or REFUSE and close
 *     JOIN   ───────────────────────────▶        ready for the next round
 *            ◀─────────────────────── WAITING    which nodes are missing, when it changes
 *            ◀─────────────────────── MEMBERS    to group rank 0: who may use its store
 *            ◀─────────────────────── START      the round is complete: ranks, store, count
 *     REACHABILITY ─────────────────────▶        the node reaches the sample of nodes in START; or not, and why
 *            ◀────────────── REACHABILITY        all nodes do: start the workers. Or STOP, and a START on another network
 *     HEARTBEAT ────────────────────────▶        each second; HEARTBEAT_ACK comes back
 *     METRICS ──────────────────────────▶        changed values that workers have reported
 *     STACKS ───────────────────────────▶        a request for the stacks of all workers, and the answers; passed on
 *     CLOCK  ◀──────────────────────────▶        --stragglers: the agent's clock; it comes back with the server's
 *     CALLS  ───────────────────────────▶        --stragglers: when its ranks made which call; passed on to group rank 0
 *     ABSENT ───────────────────────────▶        its ranks that have not connected to the worker store; passed on to group rank 0
 *     FAILURE ──────────────────────────▶        a worker failed by itself
 *            ◀─────────────────────── STOP       to all: end the workers, and why
 *     STOPPING ─────────────────────────▶        at once: the agent is alive and has STOP
 *     STOPPED ──────────────────────────▶        all its workers have ended; then JOIN again
 *     SAMPLES ──────────────────────────▶        the samples in work of a failed worker, before FAILURE
 *     SUCCEEDED ────────────────────────▶        all its workers ended with 0
 *            ◀─────────────────────── VERDICT    the run is over: outcome, cause, exit code
 *     LEAVE  ───────────────────────────▶        the node leaves (signal, drain); the run need not end
 *     RELOAD ◀──────────────────────────▶        another command line for the workers: see ct_reload
 *     LOSS   ◀──────────────────────────▶        --survive: a rank is lost, the others may continue; to all
 *     STILL  ───────────────────────────▶        its live ranks do nothing until they get WORLD
 *            ◀─────────────────────── WORLD      to all, when all have sent STILL: these ranks continue
 *     GROW   ◀──────────────────────────▶        --survive-replace: a rank that replaces a lost one waits; to all
 *
 * A membership may continue after its connection breaks: with WELCOME comes a TICKET, and an agent
 * that connects again sends RESUME, with the key of the TICKET, before its HELLO.
 *
 *     RESUME, HELLO ────────────────────▶        the member that it was; also to a restarted server
 *            ◀─────────────────────── WELCOME, RESUMED, then what was missed: START, STOP, VERDICT;
 *                                     or REFUSE E_LEADER_LOST: this membership has ended
 *
 * The agent then sends again what may have been lost: FAILURE, STOPPING, STOPPED, SUCCEEDED, JOIN,
 * LOSS, GROW, STILL; each counts once, even if it comes several times. An agent that has not
 * resumed when its lease ends is lost.
 *
 * An agent sends HEARTBEAT from WELCOME on, in every state: an agent that sends nothing at all for
 * lost_after_ms is lost. In return, an agent has no live worker any more lost_after_ms after it
 * sent the last HEARTBEAT that was acknowledged: until then the server starts no world without it,
 * so two worlds never live at once. A member that gets STOP answers STOPPED even if it has no
 * worker left (it SUCCEEDED before), then JOINs again unless STOP was final. An UNDECIDED STOP is
 * followed by a second one with the decision, also to members that have joined again by then:
 * whether its failure is the cause, or the consequence of a lost node, is known when every member
 * has answered STOPPING or is lost. After LEAVE an agent still sends STOPPED once its workers are
 * gone; a connection that ends without STOPPED counts as broken. VERDICT may come at any time, also
 * while an agent waits for START.
 *
 * Paused is not dead. After WELCOME an agent sends PEER with the port of its end of the connection.
 * If the server sees the same port, there is no proxy between the two kernels, so an
 * acknowledgement comes from the other host itself; the server answers with the port that it sees.
 * From then on a member that is silent for four fifths of lost_after_ms gets another PEER. If its
 * host has not acknowledged this PEER by the end of lost_after_ms, the member is lost; if it has,
 * the host lives and the agent is paused (SIGSTOP, a full disk, a debugger): it gets another PEER
 * every fifth, for CT_PAUSE_LEASES leases at most. Its guard ends the workers when nothing was
 * received for two fifths of a lease (agent/guard/fence.h), so no world starts before half a lease
 * has passed since the last PEER. In the other direction, a server whose host acknowledges every
 * heartbeat is paused too: it reads these before it counts a member as lost, so an agent keeps its
 * workers for four fifths of that time.
 *
 * Every message of a round carries its generation; one of another generation is ignored. One
 * struct a kind, fields in wire order, fixed capacities: nothing is allocated. struct ct_message
 * only points at one: 16 bytes on a stack. Kinds and field orders are numbered for ever
 * (tests/unit/worker_sdk/wire/message_test.c holds golden bytes). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "worker_sdk/net/addr.h"
#include "worker_sdk/base/buf.h"
#include "worker_sdk/wire/facts.h"
#include "worker_sdk/wire/frame.h"
#include "worker_sdk/wire/layout.h"
#include "worker_sdk/wire/metric.h"

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
    /* 19 let any client that knew the run id end the run for all nodes. Never use it again. */
    CT_MESSAGE_STOPPING = 20,
    CT_MESSAGE_RESUME = 21,
    CT_MESSAGE_RESUMED = 22,
    CT_MESSAGE_TICKET = 23,
    CT_MESSAGE_MEMBERS = 28,
    CT_MESSAGE_OFFER = 29,  /* beside HELLO and CHALLENGE, see auth.h */
    CT_MESSAGE_SEALED = 30, /* its body is ciphertext, see seal.h: not for this codec */
    CT_MESSAGE_PEER = 25,   /* both ways: see "Paused is not dead" */
    CT_MESSAGE_RESIZE = 26, /* both ways: a request, which goes to all agents */
    /* Both ways: a request, which goes to the agents that it names. */
    CT_MESSAGE_DRAIN = 27,
    CT_MESSAGE_SIGNAL =
        40, /* both ways: the run got a signal, which all nodes send to their workers */
    CT_MESSAGE_RESTART =
        44, /* both ways: a request and its answer; then all agents get a STOP */
    CT_MESSAGE_REACHABILITY = 45, /* both ways: see above */
    CT_MESSAGE_METRICS = 47,
    CT_MESSAGE_LOSS = 56, /* 56 to 58: see LOSS above */
    CT_MESSAGE_STILL = 57,
    CT_MESSAGE_WORLD = 58,
    CT_MESSAGE_GROW = 69,   /* both ways: see GROW above */
    CT_MESSAGE_STACKS = 60, /* both ways: see ct_stacks */
    CT_MESSAGE_SAMPLES = 65,
    CT_MESSAGE_CHAOS = 66,  /* both ways: a fault, and its result; see ct_chaos */
    CT_MESSAGE_CLOCK = 67,  /* both ways: see ct_clock */
    CT_MESSAGE_CALLS = 68,  /* both ways: see ct_calls */
    CT_MESSAGE_ABSENT = 70, /* both ways: see ct_absent */
    CT_MESSAGE_RELOAD = 64, /* both ways: see ct_reload */
    /* between worker and agent, over the agent's Unix socket */
    CT_MESSAGE_WORKER_HELLO = 32,
    CT_MESSAGE_WORKER_STEP = 33,
    CT_MESSAGE_WORKER_SHOULD_STOP = 34,
    CT_MESSAGE_WORKER_CRASH_RECORD = 35, /* with a descriptor: see crash.h */
    CT_MESSAGE_WORKER_NODE_LOST = 36,
    CT_MESSAGE_WORKER_PROGRESS = 37, /* with a descriptor: see progress.h */
    /* --survive=sdk: a rank is lost; the others ask who continues, and get the answer. GROW: a new
     * rank waits */
    CT_MESSAGE_WORKER_RANK_LOST = 38,
    CT_MESSAGE_WORKER_SHRINK = 39,
    CT_MESSAGE_WORKER_WORLD = 46,
    CT_MESSAGE_WORKER_GROW = 55,
    CT_MESSAGE_WORKER_FLIGHT = 54, /* with a descriptor: see flight.h */
    CT_MESSAGE_WORKER_HOLD = 52,   /* on a connection of its own: agent/hold/hold.h */
    CT_MESSAGE_WORKER_HOLD_REPLY = 53,
    /* between ctrunctl and agent, over the agent's other Unix socket */
    CT_MESSAGE_CTL_REQUEST = 48,
    CT_MESSAGE_CTL_REPLY = 49,
    /* the run's own etcd (--ha): what a node can offer, and which nodes are members */
    CT_MESSAGE_HA_REPORT =
        50, /* agent to server, after WELCOME and whenever it changes */
    CT_MESSAGE_HA_PLAN = 51, /* server to each agent that has reported */
};

/* Numbers of version 1 that are never used again: a message with one is malformed. */
enum {
    CT_MESSAGE_RETIRED_FIRST = 41,
    CT_MESSAGE_RETIRED_LAST = 43,
};

enum {
    CT_RUN_ID_MAX = 256,
    CT_ROLE_MAX = 64,
    CT_ROLES_MAX = 8, /* on one node */
    CT_REASON_MAX = 1024,
    CT_EXCEPTION_MAX = 256,
    CT_MISSING_MAX = 1024,
    CT_MESSAGE_ADDRS_MAX = 8,
    CT_START_PEERS_MAX = 4,
    CT_MEMBER_KEYS_MAX = 255,
    CT_MEMBER_KEY_BYTES = 16,
    CT_OFFER_KEY_BYTES = 32,
    CT_CREDENTIAL_MAX = 1024,
    CT_FAILURES_MAX = 16,
    CT_NONCE_BYTES = 32,
    CT_PROOF_BYTES = 32,
    CT_HA_MEMBERS_MAX = 8,
    CT_METRICS_SENT_MAX = 255, /* in one message */
    CT_SAMPLES_MAX = 64,       /* of a batch, that are reported */
    CT_CALLS_MAX = 255,        /* in one message */
    CT_ABSENT_RANKS_MAX = 64,
    CT_HA_SEED_BYTES = 32,
    CT_STACKS_NODES_MAX = 256, /* that are asked at once */
    CT_STACKS_TEXT_MAX = 16384,
    CT_STACKS_ALL_MAX_BYTES = 2 << 20, /* of all of them together */
    CT_STACKS_NODE_MAX_BYTES = 192 << 10,
    CT_COMMAND_MAX = 4096, /* a command line, as a shell would read it */
    CT_PAUSE_LEASES = 6,   /* how long a paused agent is waited for, in lost_after_ms */
};

/* Why a worker ended; on the wire as u8. */
enum ct_cause {
    CT_CAUSE_NONE = 0,   /* ended with 0, or still running */
    CT_CAUSE_EXIT = 1,   /* it exited with `code` */
    CT_CAUSE_SIGNAL = 2, /* `code` is the signal */
    CT_CAUSE_OOM = 3,    /* SIGKILL by the kernel for lack of memory, proven */
    CT_CAUSE_EXEC = 4,   /* never ran: `code` is the errno of execve or chdir */
    /* It was ended by ctrun: a consequence, no cause; `code` as SIGNAL. */
    CT_CAUSE_STOPPED = 5,
    CT_CAUSE_NODE_LOST = 6,  /* the node is silent or its connection broke */
    CT_CAUSE_UNKILLABLE = 7, /* survived SIGKILL */
    CT_CAUSE_JOIN_TIMEOUT = 8,
    CT_CAUSE_AGENT = 9, /* the agent itself could not continue; `text` says why */
    CT_CAUSE_HANG = 10, /* stuck: no step for too long; `code` says how sure that is */
    /* Ended with 0 while others still ran: no failure, but reported. */
    CT_CAUSE_EARLY = 11,
    CT_CAUSE_UNREACHABLE =
        12, /* this node does not reach group rank 0: agent/link/reachability.h */
    CT_CAUSE_RAISED = 13, /* has written its error file, and had not ended yet */
    /* As EARLY, on another node than the root cause: which was first is not certain. Only servers set it. */
    CT_CAUSE_ENDED = 14,
    CT_CAUSE_LAST = CT_CAUSE_ENDED,
};

/* The call of PyTorch in which ranks of one node wait for a stuck rank. */
struct ct_stuck_call {
    char group[48]; /* its name on all ranks */
    char title[48]; /* "default_pg"; may be empty */
    char op[48];
    char sizes[96]; /* may be empty */
    int64_t number; /* in its group */
    uint32_t waiting;
    char waiting_ranks[64]; /* "0-3, 5"; empty: there is no room */
};

/* One failure, as every node prints it. */
struct ct_failure {
    uint64_t generation;
    uint8_t cause; /* enum ct_cause */
    int32_t code;  /* exit code, signal or errno */
    /* The status of its process from waitpid(): exit code, or minus the signal; 0: its end has not
     * been seen. */
    int32_t end_code;
    int32_t rank; /* global; -1: the node as a whole */
    int32_t local_rank;
    int32_t node_rank;
    int32_t pid;
    uint32_t restart_count;
    uint64_t wall_ns;   /* the node's clock, for people */
    uint64_t uptime_ms; /* how long the worker ran */
    int64_t step;       /* last one reported to the agent; -1: none */
    char host[CT_HOST_MAX];
    char error_file[512];     /* path on that host; empty: none was written */
    char text[CT_REASON_MAX]; /* of the error file, or the last lines of output */
    char exception
        [CT_EXCEPTION_MAX]; /* "ValueError: boom", then text is its traceback; or empty */
    uint8_t may_loop;       /* an equal failure after it is a crash loop */
    struct ct_facts facts; /* that its node found */
    /* CTRUN_E_* of the SDK with which the worker failed, or CTRUN_E_PEER_LOST where its last words
     * say so; 0: not known. */
    int32_t error;
    /* FAILURE, STOPPED: how long ago it happened when this was sent; 0: not known. VERDICT has
     * none. A CT_CAUSE_HANG only counts if no node has made progress (ct_heartbeat) since. */
    uint64_t age_ms;
    /* FAILURE with age_ms, and the cause of STOP: for the nodes that did not see the call. */
    uint8_t call_count;
    struct ct_stuck_call call[1];
    /* VERDICT: it happened at least this much later than the root cause; 0: not known. */
    uint64_t later_ms;
    /* Not on the wire: the latest time at which it happened, by the holder's own clock, and by how
     * much it may have been earlier; 0: not known. */
    uint64_t happened_ms;
    uint64_t doubt_ms;
    bool is_end; /* not on the wire: reported at the end of the round */
};

/* What a node was started for, so that two jobs at one endpoint are not mixed. */
struct ct_job {
    /* Name of its program; empty: the job is identified by --rdzv-id. */
    char program[64];
    char user[32];
    uint8_t is_alone;       /* no number of nodes was given: a job of one node */
    uint8_t wants_launcher; /* one of its nodes serves it, not a server of many runs */
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
    /* Worlds have a multiple of this many nodes; 0 or 1: any number. */
    uint32_t node_unit;
    uint64_t instance;   /* of the run of the last START; 0: there was no START */
    uint64_t generation; /* of that START */
    uint8_t job_count;   /* 1; 0: no job, left out on the wire */
    struct ct_job job[1];
    /* After how many hardware faults a node is excluded; 0: never, left out on the wire. */
    uint64_t exclude_after;
};

/* server -> agent */
struct ct_challenge {
    uint8_t nonce[CT_NONCE_BYTES];
};

/* PROOF by the agent, SERVER_PROOF by the server */
struct ct_proof {
    uint8_t proof[CT_PROOF_BYTES];
};

/* In the instance of a run that a ctrund has founded, and in no other: that server serves many runs, is no node of any, and
 * may be started again. */
#define CT_INSTANCE_AT_CTRUND (UINT64_C(1) << 63)

/* server -> agent; the run's settings are those of its first member */
struct ct_welcome {
    uint64_t heartbeat_ms;
    uint64_t lost_after_ms;
    /* The agent's address that the server sees, no port. */
    char seen_as[CT_ADDR_TEXT_MAX];
    uint64_t wall_ns;       /* the server's clock, for people */
    char host[CT_HOST_MAX]; /* the server's machine, for people */
    /* Random but for CT_INSTANCE_AT_CTRUND; tells this run from others of the same id. */
    uint64_t instance;
    uint64_t term; /* grows with each server that is elected; 0: there is no election */
};

struct ct_refuse {
    int32_t code;    /* CTRUN_E_VERSION, _WRONG_RUN, _CLOSED, _FINGERPRINT, ... */
    uint8_t version; /* the server's */
    char text[CT_REASON_MAX];
};

/* Some of a node's workers: local ranks are in the order of the list of roles. */
struct ct_role {
    char name[CT_ROLE_MAX];
    uint32_t slots;
};

struct ct_role_list {
    uint8_t count; /* 0: all workers have one role, which another member names */
    struct ct_role list[CT_ROLES_MAX];
};

/* The place of a node's role among the ranks of this role on all nodes. */
struct ct_role_place {
    uint32_t rank_base;
    uint32_t world_size;
};

enum {
    CT_VERSION_MAX = 24
};

struct ct_join {
    uint32_t slots;         /* workers this node will run */
    int32_t node_rank_hint; /* SLURM_NODEID or --node-rank; -1: none */
    uint8_t is_endpoint;    /* it has the endpoint's address: first, unless hinted */
    uint16_t store_port;    /* of a worker store that is bound already and empty */
    uint64_t
        fingerprint; /* of what all nodes must share: launcher/config/fingerprint.h */
    char role[CT_ROLE_MAX];
    /* --local-addr; empty: one of those below is chosen. */
    char local_addr[CT_HOST_MAX];
    uint8_t addr_count;
    char addrs[CT_MESSAGE_ADDRS_MAX][CT_ADDR_TEXT_MAX]; /* numeric, no port */
    uint64_t program; /* a hash of what the workers execute; 0: it could not be read */
    /* Its PyTorch supports it, and the user has set none of its variables:
     * launcher/config/gloo_scale.h. */
    uint8_t knows_gloo_scale;
    /* --survive: the others may continue without this node if all of them ask who does within this
     * time; 0: they may not. */
    uint64_t survive_ms;
    uint8_t replaces; /* --survive-replace: it may replace a lost node */
    /* "2.6": the PyTorch beside its interpreter; "550.54.15": NVIDIA's driver. Empty: none, or not
     * known. */
    char torch[CT_VERSION_MAX];
    char driver[CT_VERSION_MAX];
    /* Empty: all workers have `role`; left out on the wire then. */
    struct ct_role_list roles;
};

struct ct_waiting {
    uint32_t joined;
    uint32_t min_nodes; /* both are multiples of --node-unit */
    uint32_t max_nodes;
    uint64_t left_ms; /* until the join deadline, or the start if that is earlier */
    /* No world starts before: workers of a lost node or of another server, or from before a restart
     * of this one, may live; 0: none do. */
    uint64_t held_ms;
    /* The run is full: the place among the spares, from 1; 0: no spare. */
    uint8_t is_spare;
    /* Names of nodes that were there before and are not now. */
    char missing[CT_MISSING_MAX];
};

/* What a node must do before its workers start. */
enum ct_reach {
    CT_REACH_FREE = 0, /* find an address of group rank 0, on any network */
    CT_REACH_PROVE =
        1, /* reach master_addr itself and all peers, send REACHABILITY, and wait for it */
    CT_REACH_NONE_REACHES_ALL = 2, /* as FREE: every network has been found cut */
    /* As FREE: the user gave the network; warn when a peer is not reached. */
    CT_REACH_WARN = 3,
};

struct ct_start_peer {
    char host[64]; /* for people */
    char addr[CT_ADDR_TEXT_MAX];
    uint16_t port; /* a refused connection proves it, too */
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
    uint8_t addr_count; /* its other addresses, if master_addr is not reached */
    char addrs[CT_MESSAGE_ADDRS_MAX][CT_ADDR_TEXT_MAX];
    char layout[CT_LAYOUT_MAX]; /* "8+8+7": workers of each node; for people */
    uint8_t reach;              /* enum ct_reach */
    uint8_t peer_count;
    struct ct_start_peer peers[CT_START_PEERS_MAX];
    char unlike[256]; /* to group rank 0: the nodes with another program; for people */
    uint8_t uses_gloo_scale; /* all nodes support it */
    /* This node has the place of a lost node, and the other nodes run; the WORLD that follows has
     * their ranks. */
    uint8_t is_new;
    char versions
        [256]; /* to group rank 0: "PyTorch 2.6 on n1, but 2.4 on n2"; for people */
    uint8_t role_count; /* as in JOIN, and in its order; left out on the wire when 0 */
    struct ct_role_place roles[CT_ROLES_MAX];
};

/* server -> group rank 0's agent, before its START: the addresses that the workers of this round
 * come from, as ct_addr_key() has them, in several messages if needed */
struct ct_members {
    uint64_t generation;
    uint8_t is_last; /* it is the last message */
    uint8_t count;
    uint8_t keys[CT_MEMBER_KEYS_MAX][CT_MEMBER_KEY_BYTES];
};

/* agent -> server before HELLO, server -> agent before CHALLENGE; left out if not needed */
struct ct_offer {
    uint8_t key[CT_OFFER_KEY_BYTES];    /* for a sealed link; zero: no sealed link */
    uint8_t has_munge;                  /* agent: it can read a credential */
    char credential[CT_CREDENTIAL_MAX]; /* server: the credential */
};

struct ct_heartbeat { /* and its acknowledgement: the same fields come back */
    uint64_t generation;
    uint64_t sequence;
    int64_t step; /* smallest step of the node's workers; -1: none */
    /* How long none of the node's workers has made progress, as seen from outside, at least 1; 0:
     * not watched, left out on the wire. */
    uint64_t quiet_ms;
};

struct ct_metric_sent {
    int32_t rank; /* global */
    char name[CT_METRIC_NAME_MAX];
    uint64_t bits; /* of a double */
};

/* agent -> server: the last values, of some of its ranks; all of them again after a resume */
struct ct_metrics {
    uint64_t generation;
    uint8_t count;
    struct ct_metric_sent list[CT_METRICS_SENT_MAX];
};

/* The time of the agent's monotonic clock; the server sends it back with its own. */
struct ct_clock {
    uint64_t agent_ns;
    uint64_t server_ns;
};

/* A collective call that all ranks of the node in this group have made. */
struct ct_call {
    uint64_t group;      /* a hash of its name */
    int64_t number;      /* in the group; grows */
    uint64_t entered_ns; /* when the last of them made it, by the server's clock */
    uint64_t shape;      /* a hash of what is called, and on how much */
};

/* agent -> server -> agent of group rank 0, which compares the nodes */
struct ct_calls {
    uint64_t generation;
    uint32_t node; /* rank of the node; the server fills in this and `host` */
    char host[CT_HOST_MAX];
    int32_t rank;      /* global: the rank that was last most often */
    uint64_t doubt_ns; /* entered_ns may be wrong by this much */
    /* The load of that rank: time ready to run without a CPU, time of its CPU taken by the
     * hypervisor, pages read from the disk a second, clock of its CPU; 0: not known. */
    uint32_t wait_permille, steal_permille, faults, mhz;
    uint32_t resent; /* TCP segments that its machine sends again, per second */
    uint32_t gpu_mhz, gpu_max_mhz, gpu_slow; /* its GPU: agent/watch/rank_load.h */
    int32_t gpu_xid;
    uint8_t count;
    struct ct_call list[CT_CALLS_MAX]; /* those of one group in the order of time */
};

/* agent -> server -> agent of group rank 0: ranks of a node that have no connection to the worker
 * store of the round */
struct ct_absent {
    uint64_t generation;
    uint32_t node; /* rank of the node; the server fills in this and `host` */
    char host[CT_HOST_MAX];
    uint32_t count;
    char ranks[CT_ABSENT_RANKS_MAX]; /* "0-3, 6"; for people */
};

struct ct_sample {
    uint64_t id;
};

/* agent -> server, before the FAILURE of that rank: the samples that it was working on, as it
 * reported */
struct ct_samples {
    uint64_t generation;
    int32_t rank;   /* global */
    uint64_t total; /* of its batch */
    uint8_t count;  /* of `list`: its first ones */
    struct ct_sample list[CT_SAMPLES_MAX];
};

enum ct_stop_reason {
    CT_STOP_FAILURE = 1, /* a worker failed somewhere */
    CT_STOP_NODE_LOST = 2,
    CT_STOP_MEMBERSHIP = 3, /* a new node, or a member left */
    /* 4 belonged to message 19 */
    CT_STOP_UNDECIDED = 5, /* a worker failed; a second STOP tells what follows */
    CT_STOP_ASKED = 6,     /* for a new round, by RESTART; costs no restart */
    /* A node does not reach all nodes, see REACHABILITY; costs no restart. */
    CT_STOP_NETWORK = 7,
};

/* What happens to a node that failed first in two rounds in a row, or several times by its
 * hardware. */
enum ct_culprit_fate {
    CT_CULPRIT_NONE = 0,     /* there is no such node */
    CT_CULPRIT_EXCLUDED = 1, /* a spare takes its place */
    CT_CULPRIT_KEPT = 2,     /* not excluded: it serves the rendezvous */
    /* A node whose hardware failed exclude_after times. */
    CT_CULPRIT_BROKEN = 3,        /* excluded */
    CT_CULPRIT_BROKEN_KEPT = 4,   /* not excluded: it serves the rendezvous */
    CT_CULPRIT_BROKEN_NEEDED = 5, /* not excluded: fewer than min nodes would be left */
};

struct ct_stop {
    uint64_t generation;
    uint8_t reason;   /* enum ct_stop_reason */
    uint8_t is_final; /* no further round: VERDICT will follow, do not join again */
    uint32_t restart_count; /* of the next round */
    uint32_t max_restarts;
    /* If nothing failed, cause == CT_CAUSE_NONE, and `host` and `text` say who left or asked, and
     * why, if anybody did; CT_FACT_JOINED: which nodes have joined. */
    struct ct_failure cause;
    uint8_t culprit_fate;      /* enum ct_culprit_fate */
    char culprit[CT_HOST_MAX]; /* its host */
};

/* The number of failures without room in a list of CT_FAILURES_MAX. */
struct ct_more {
    uint32_t failed;  /* by themselves */
    uint32_t stopped; /* by ctrun; not those that had ended with 0 */
};

/* How far a node's ranks were when the node got the report of a stuck rank. */
struct ct_hang_view {
    uint32_t ranks;   /* that ran; 0: the node did not look */
    uint32_t waiting; /* for other ranks, in a collective */
    int64_t lowest;   /* last steps; -1: none */
    int64_t furthest;
    char waiting_ranks[64]; /* "0-3, 5"; empty: none, or there is no room */
};

struct ct_stopped {
    uint64_t generation;
    struct ct_more more;
    struct ct_hang_view hang;
    uint8_t failure_count; /* workers that failed or were stopped */
    struct ct_failure failures[CT_FAILURES_MAX];
};

struct ct_succeeded {
    uint64_t generation;
};

struct ct_stopping {
    uint64_t generation;
    uint64_t grace_ms; /* that its workers get */
};

/* The limits of the run, for the next rounds; a world ends if it is too large or may grow. */
struct ct_resize {
    uint32_t min_nodes;
    uint32_t max_nodes;
    /* Who asked, for people; the server fills it in. Empty: not known, an earlier server was asked. */
    char by[CT_HOST_MAX];
};

/* Save, end your workers, leave. The agent that asked gets an answer of the same kind, before a
 * DRAIN for itself. */
struct ct_drain {
    char host[CT_HOST_MAX]; /* whose agents; empty: all of the run */
    char reason[128];
    uint32_t ticket; /* of the request, comes back with its answer; 0: none is wanted */
    uint8_t is_answer;
    uint32_t sent_to;           /* answer: how many agents get it */
    char hosts[CT_MISSING_MAX]; /* answer, if none does: the hosts of the run */
};

/* A new round, on the same nodes. */
struct ct_restart {
    char reason[128];
    uint32_t ticket; /* of the request, comes back with its answer; 0: none is wanted */
    uint8_t is_answer;
    uint64_t generation; /* answer: of the world that stops; 0: none does */
    char refusal[128];   /* answer: why none stops */
};

/* The stacks of workers. An agent sends ASK; the server passes it on, lists the nodes in ASKED, one
 * message a node, and passes on their answers: TEXT, and END as the last one. */
enum ct_stacks_what {
    CT_STACKS_ASK = 1,
    CT_STACKS_ASKED = 2,
    CT_STACKS_TEXT = 3,
    CT_STACKS_END = 4,
};

struct ct_stacks {
    uint8_t what;      /* enum ct_stacks_what */
    uint32_t ticket;   /* of the request at its agent */
    uint64_t asker;    /* the server's id of that agent; comes back with answers */
    int32_t rank;      /* ASK: -1: all */
    uint32_t most;     /* ASK: the most bytes that a node may send */
    uint32_t nodes;    /* ASKED: how many nodes; 0: none, and `node` has no meaning */
    uint32_t left_out; /* ASKED: how many nodes are not asked */
    /* Rank of the node of ASKED, TEXT, END; the server fills in this and `host`. */
    uint32_t node;
    char host[CT_HOST_MAX];
    char text[CT_STACKS_TEXT_MAX];
};

/* What ctrunctl chaos asks for; on the wire as u8. */
enum ct_fault_kind {
    CT_FAULT_KILL = 1, /* sends `signal` to the process of a rank */
    CT_FAULT_STOP = 2, /* stops the process of a rank for for_ms */
    /* For for_ms a node's agent has no connection to the rendezvous. */
    CT_FAULT_CUT = 3,
    CT_FAULT_SLOW = 4,  /* for for_ms, what it sends there leaves `by` ms late */
    CT_FAULT_FULL = 5,  /* for for_ms it can write no log file of a worker */
    CT_FAULT_END = 6,   /* ends all faults that still last, on all nodes */
    CT_FAULT_SEVER = 7, /* shuts down the connections of a rank to other ranks */
    CT_FAULT_QUOTA = 8, /* for for_ms the workers of a node can write no regular file */
    /* for for_ms they send at most `by` bytes a second on each connection to another rank */
    CT_FAULT_THROTTLE = 9,
};

enum {
    CT_FAULT_KINDS = CT_FAULT_THROTTLE + 1,
    CT_FAULT_FOR_MAX_MS = 3600 * 1000,
    CT_FAULT_BY_MAX_MS = 60 * 1000,
    CT_FAULT_RATE_MIN = 1024, /* bytes a second */
    CT_FAULT_RATE_MAX = 1 << 30,
};

struct ct_fault {
    uint8_t kind;   /* enum ct_fault_kind */
    int32_t target; /* KILL, STOP, SEVER: a rank; else the rank of a node */
    int32_t signal;
    uint32_t for_ms;
    uint32_t by;   /* SLOW: ms; THROTTLE: bytes a second */
    uint32_t line; /* of the plan */
};

static inline bool ct_fault_is_of_rank(const struct ct_fault *fault)
{
    return fault->kind == CT_FAULT_KILL || fault->kind == CT_FAULT_STOP ||
           fault->kind == CT_FAULT_SEVER;
}

/* An agent sends the request of its ctrunctl; the server passes it on to the node that has the
 * target, and the answer back. END is sent to all others, without an answer. */
struct ct_chaos {
    uint8_t is_answer;
    uint32_t ticket; /* of the request at its agent */
    uint64_t asker;  /* the server's id of that agent; comes back with the answer */
    struct ct_fault fault;
    char host[CT_HOST_MAX]; /* the node that sends it; filled in by the server */
    char text[192];         /* the line of the plan; answer: what failed, empty: done */
};

enum ct_reload_step {
    CT_RELOAD_ASK = 1,    /* agent -> server: its ctrunctl asks for `command` */
    CT_RELOAD_OFFER = 2,  /* server -> every agent: can this node run it? */
    CT_RELOAD_ANSWER = 3, /* agent -> server: `program`, or `text`: why not */
    /* server -> every agent: `number` is accepted, and is used from the next START on. agent ->
     * server, after WELCOME and RESUMED: the last one that this agent got. */
    CT_RELOAD_TAKE = 4,
    CT_RELOAD_REPLY = 5, /* server -> who asked: accepted, or `text`: why not */
};

/* Another program or other arguments for the workers of all nodes, from the next round on. The
 * server keeps the last one for nodes that join later; a restarted server gets it from its
 * agents. */
struct ct_reload {
    uint64_t number; /* number of the reload, from 1; ASK: 0 */
    uint8_t step;    /* enum ct_reload_step */
    uint32_t ticket; /* ASK, REPLY: of the request */
    uint64_t
        program; /* ANSWER, TAKE: a hash of what is executed, as in JOIN; 0: not known */
    char by[CT_HOST_MAX]; /* who asked, for people; the server fills it in */
    char text[512];
    char command[CT_COMMAND_MAX];
};

/* agent -> server: this node reaches what START asks for, or what it does not reach; server ->
 * agent: start the workers */
struct ct_reachability {
    uint64_t generation;
    char cut[256]; /* "cannot reach node3 on ..."; empty: nothing */
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
    CT_OUTCOME_CLOSED = 5,     /* not from a server: this node left by itself */
    CT_OUTCOME_CRASH_LOOP = 6, /* failed twice in the same way right after the start */
};

struct ct_verdict {
    uint64_t generation;
    uint8_t outcome;   /* enum ct_outcome */
    uint8_t exit_code; /* what every launcher of the run ends with */
    uint32_t restart_count;
    struct ct_more more; /* of all nodes */
    uint8_t
        failure_count; /* [0] is the root cause, the others as rendezvous/round/failures.h says */
    struct ct_failure failures[CT_FAILURES_MAX];
};

struct ct_leave {
    uint64_t generation;
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
    CT_RESUME_STOPPING = 3,  /* workers of `generation` are being ended */
    CT_RESUME_STOPPED = 4,   /* all workers have ended; no decision has come yet */
    CT_RESUME_SUCCEEDED = 5, /* they ended with 0 */
};

/* agent -> server, in front of HELLO */
struct ct_resume {
    uint64_t id;
    uint64_t key;
    uint64_t generation; /* of the last START that this agent got; 0: none */
    uint8_t state;       /* enum ct_resume_state */
    /* Counts this agent's connections: a message of an earlier one may arrive later. */
    uint64_t attempt;
};

/* server -> agent, behind WELCOME */
struct ct_resumed {
    /* Of the last START sent to it; if above the agent's, START is sent again. */
    uint64_t generation;
    uint8_t is_in_world; /* workers of it count as alive: STOPPED has not arrived */
};

/* agent -> server -> the other agents of the world */
struct ct_signal {
    uint64_t generation;
    int32_t signal;         /* SIGUSR1 or SIGUSR2 */
    uint32_t count;         /* agent/node/signal_once.h */
    char host[CT_HOST_MAX]; /* whose agent got it; filled in by the server */
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
    uint32_t size; /* of struct ct_crash, in the worker's version */
};
struct ct_worker_progress {
    uint32_t size; /* of struct ct_progress, in the worker's version */
};
struct ct_worker_flight {
    uint32_t size; /* of struct ct_flight, in the worker's version */
};
/* worker -> agent: a checkpoint in memory that the agent also holds. Each request gets one reply,
 * perhaps late; the next request follows it. */
enum ct_hold_verb {
    /* Begins with `bytes` of memory; `name`, `path`; with the folder's descriptor. */
    CT_HOLD_BEGIN = 1,
    CT_HOLD_RESERVE = 2, /* `bytes` more */
    /* It has `bytes` with this `crc`; with the memory's descriptor. */
    CT_HOLD_COMMIT = 3,
    CT_HOLD_DROP = 4, /* gives up what was begun */
    CT_HOLD_WAIT = 5, /* waits until what this rank committed is on disk, or lost */
    CT_HOLD_FIND = 6, /* asks for the file `name` */
};

struct ct_worker_hold {
    uint8_t verb; /* enum ct_hold_verb */
    uint64_t bytes;
    uint32_t crc;    /* CRC-32C */
    uint64_t device; /* of the folder, as fstat() has it */
    uint64_t inode;
    char name[256];  /* of the file in it */
    char path[1024]; /* as the worker calls it, for people */
};

/* agent -> worker */
struct ct_worker_hold_reply {
    int32_t code; /* 0, or what was wrong: `text` */
    /* FIND: its length, with its descriptor; code -ENOENT: it is not held. */
    uint64_t bytes;
    uint32_t crc;
    uint64_t inode; /* of the file that was written */
    uint64_t mtime_ns;
    char text[512];
};

/* agent -> worker */
struct ct_worker_should_stop {
    char reason[128];
};
/* agent -> worker: a node of its round is lost; its ranks will not answer any more */
struct ct_worker_node_lost {
    char text[192];
};
/* agent -> worker: a rank is lost, and the others may continue without it */
struct ct_worker_rank_lost {
    uint32_t losses; /* of this round so far, with this one */
    char text[192];
};
/* worker -> agent: this rank does nothing until it gets the next world */
struct ct_worker_shrink {
    uint32_t epoch; /* of the last WORKER_WORLD that it got; 0: none */
};
/* agent -> worker, once all live ranks have asked: only these ranks continue */
enum {
    CT_WORLD_BYTES = 512
};
/* agent -> worker: a rank that replaces a lost one waits for the world after that of `epoch` */
struct ct_worker_grow {
    uint32_t epoch;
};
struct ct_worker_world {
    uint32_t epoch;                /* number of the world, from 1 */
    uint32_t losses;               /* losses that it takes into account */
    uint8_t ranks[CT_WORLD_BYTES]; /* a bit each, the lowest first */
    uint16_t store_port;           /* of the worker store; 0: it has not moved */
    char store_addr[CT_HOST_MAX];
};

/* --survive over several nodes: the generation stays, an epoch counts its worlds. agent -> server:
 * a rank of this node is lost; server -> agents of the world: the same, counted */
struct ct_loss {
    uint64_t generation;
    /* Of this generation so far, with this one; to the server: 0. */
    uint32_t losses;
    int32_t rank;      /* -1: all ranks of a node */
    uint32_t count;    /* ranks that this message reports; to the server: 1 */
    uint8_t has_store; /* no node keeps the worker store; the server sets it */
    char text[192];
};
/* agent -> server: all live ranks of this node have asked for the next world, and no process of a
 * lost rank lives */
struct ct_still {
    uint64_t generation;
    uint32_t epoch; /* of the last WORLD that they got; 0: none */
    uint8_t ranks[CT_WORLD_BYTES];
};
/* server -> agents of the world, once each has sent STILL: only these ranks continue; no rank: none
 * does */
struct ct_world {
    uint64_t generation;
    uint32_t epoch;  /* number of the world, from 1 */
    uint32_t losses; /* losses that it takes into account */
    uint8_t ranks[CT_WORLD_BYTES];
    uint32_t store_node; /* group rank of the node whose agent has the worker store */
    uint16_t store_port; /* its port; 0: the one of START */
    char store_addr[CT_HOST_MAX];
};

/* A worker that replaces a lost rank does nothing until it is in a world: the STILL of its node has
 * its rank. */
struct ct_grow {
    uint64_t generation;
    int32_t rank; /* global */
};

/* agent -> server: this node in the run's own etcd (launcher/ha/) */
struct ct_ha_report {
    uint64_t key; /* random: the member that this node is or may become; never 0 */
    char addr[CT_ADDR_TEXT_MAX]; /* where it listens or would listen */
    uint16_t client_port;        /* free and reserved; 0: it can become no member */
    uint16_t peer_port;
    uint8_t is_running; /* the member answers */
    /* Epoch of the etcd from which this node learns where the rendezvous is; 0: none. */
    uint64_t follows;
};

enum ct_ha_phase {
    CT_HA_OFF = 0,      /* there are no members: running ones end */
    CT_HA_STARTING = 1, /* the members start; the rendezvous has not moved yet */
    CT_HA_ACTIVE = 2,   /* the rendezvous has moved: etcd decides who serves */
};

struct ct_ha_member {
    uint64_t key;
    char addr[CT_ADDR_TEXT_MAX];
    uint16_t client_port;
    uint16_t peer_port;
    uint8_t is_learner;
};

/* server -> agent: the complete plan; a later one replaces it */
struct ct_ha_plan {
    uint64_t epoch;   /* a different one for each etcd that is started; never 0 */
    uint8_t phase;    /* enum ct_ha_phase */
    uint8_t nodes;    /* members that are wanted */
    uint8_t survives; /* how many of them may be lost, now */
    uint8_t seed[CT_HA_SEED_BYTES]; /* its secrets are made of it and the token */
    uint8_t count;
    struct ct_ha_member members[CT_HA_MEMBERS_MAX];
};

/* ctrunctl -> agent; on the wire as u8 */
enum ct_ctl_verb {
    CT_CTL_STATUS = 1,
    CT_CTL_SIGNAL = 2, /* `signal` to the workers of `rank`, if none dies of it */
    /* The same, also if workers may die of it. */
    CT_CTL_SIGNAL_FORCED = 10,
    CT_CTL_STOP = 3,    /* save and end: `reason` */
    CT_CTL_RESIZE = 5,  /* `signal`: min nodes, `rank`: max nodes */
    CT_CTL_DRAIN = 6,   /* `reason`: HOST, a blank, why; no host: all nodes */
    CT_CTL_WHY = 8,     /* the first cause of the last stop */
    CT_CTL_RESTART = 9, /* a new round: `reason` */
    CT_CTL_STACKS = 11, /* where the workers are: `rank` */
    CT_CTL_RELOAD = 12, /* another command line for the workers: `command` */
    CT_CTL_CHAOS = 13,  /* a `fault`; `command` is its line of the plan */
};

struct ct_command {
    char text[CT_COMMAND_MAX];
};

struct ct_ctl_request {
    uint8_t verb;
    int32_t signal;
    int32_t rank; /* -1: all of this node */
    char reason[128];
    uint8_t command_count; /* 1; 0: none, left out on the wire */
    struct ct_command command[1];
    uint8_t fault_count; /* 1; 0: none, left out on the wire; needs a command */
    struct ct_fault fault[1];
};

/* agent -> ctrunctl; a long text comes in several messages, up to is_last */
struct ct_ctl_reply {
    int32_t code;    /* 0: text is JSON; negative: text says what was wrong */
    uint8_t is_last; /* it is the last message */
    char text[16384];
};

/* A kind and a pointer to its struct, borrowed: small, so that it can be on the sender's stack. */
struct ct_message {
    enum ct_message_kind kind;
    union {
        const void *body;
        const struct ct_hello *hello;
        const struct ct_welcome *welcome;
        const struct ct_refuse *refuse;
        const struct ct_challenge *challenge;
        const struct ct_proof *proof;
        const struct ct_join *join;
        const struct ct_waiting *waiting;
        const struct ct_start *start;
        const struct ct_heartbeat *heartbeat;
        const struct ct_metrics *metrics;
        const struct ct_clock *clock;
        const struct ct_calls *calls;
        const struct ct_absent *absent;
        const struct ct_failure *failure;
        const struct ct_stop *stop;
        const struct ct_stopped *stopped;
        const struct ct_succeeded *succeeded;
        const struct ct_verdict *verdict;
        const struct ct_leave *leave;
        const struct ct_stopping *stopping;
        const struct ct_ticket *ticket;
        const struct ct_resume *resume;
        const struct ct_resumed *resumed;
        const struct ct_members *members;
        const struct ct_offer *offer;
        const struct ct_peer *peer;
        const struct ct_resize *resize;
        const struct ct_drain *drain;
        const struct ct_restart *restart;
        const struct ct_reachability *reachability;
        const struct ct_stacks *stacks;
        const struct ct_reload *reload;
        const struct ct_samples *samples;
        const struct ct_loss *loss;
        const struct ct_still *still;
        const struct ct_world *world;
        const struct ct_grow *grow;
        const struct ct_chaos *chaos;
        const struct ct_signal *signal;
        const struct ct_worker_hello *worker_hello;
        const struct ct_worker_step *worker_step;
        const struct ct_worker_should_stop *worker_should_stop;
        const struct ct_worker_node_lost *worker_node_lost;
        const struct ct_worker_crash_record *worker_crash_record;
        const struct ct_worker_progress *worker_progress;
        const struct ct_worker_flight *worker_flight;
        const struct ct_worker_rank_lost *worker_rank_lost;
        const struct ct_worker_shrink *worker_shrink;
        const struct ct_worker_world *worker_world;
        const struct ct_worker_grow *worker_grow;
        const struct ct_worker_hold *worker_hold;
        const struct ct_worker_hold_reply *worker_hold_reply;
        const struct ct_ctl_request *ctl_request;
        const struct ct_ctl_reply *ctl_reply;
        const struct ct_ha_report *ha_report;
        const struct ct_ha_plan *ha_plan;
    };
};

/* Room for the body of any message: these structs are the largest. One for each reader of a
 * connection, on the heap; the next message overwrites it. */
union ct_message_room {
    struct ct_stopped stopped;
    struct ct_verdict verdict;
    struct ct_ctl_reply ctl_reply;
    struct ct_stacks stacks;
};

/* Appends the message as one frame. 0, -EMSGSIZE, -ENOBUFS, -ENOMEM, -EINVAL (no such kind, no
 * body). */
int ct_message_encode(struct ct_buf *out, const struct ct_message *message);
/* Decodes the body of a frame of our version into `room`, which is a ct_message_room or a union of
 * the structs that may come here; *out points at it. 0, -EBADMSG (malformed, of a retired kind, or
 * its struct is longer than `room`: not valid here), -ENOSYS (unknown kind of a newer sender; skip
 * it). */
int ct_message_decode(const struct ct_frame *frame, struct ct_message *out, void *room,
                      size_t size);
/* True if the failure follows from the loss of another rank: the SDK wrote so to the error file
 * (ctrun_fail_worker()), or its last words say so, as PyTorch's do, and nothing shows that its own
 * machine is broken. */
bool ct_failure_is_victim(const struct ct_failure *failure);
/* "JOIN", for logs. Static. */
const char *ct_message_name(int kind);
const char *ct_cause_name(int cause); /* "signal", "oom", ...; for events and logs */
