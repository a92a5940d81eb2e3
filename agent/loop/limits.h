/* SPDX-License-Identifier: Apache-2.0 */
/* Caps and periods of the node agent, each with its reason. */
#pragma once

enum {
    AGENT_WORKERS_MAX =
        4096, /* slots of one node; a CPU node has a few hundred cores */

    /* Room that is made for them at the start (descriptors.h): more may come. */
    AGENT_DESCRIPTORS = 64,
    AGENT_DESCRIPTORS_PER_WORKER =
        9, /* two pipes, two files, the SDK's socket and three records, a store's */

    /* Stopping. */
    AGENT_KILL_WAIT_MS =
        10000, /* a process that survives SIGKILL longer is in the kernel */
    AGENT_ORPHAN_MS =
        200, /* what a dead worker left (tee, loaders) may end by itself */
    AGENT_HELPER_MS =
        2000, /* what a worker started and has not taken with it when it was asked to end */
    AGENT_HELPER_RESCAN_MS = 200, /* between looks at those that may save */
    AGENT_CUT_MS = 10, /* for ranks to leave a collective by themselves; doubled, */
    AGENT_CUT_MAX_MS = 1000, /* because one may connect just behind a cut */
    AGENT_RESCAN_MS = 20,    /* between looks at /proc while something has to die */
    AGENT_SIGNAL_DEDUP_MS =
        200, /* guard and slurmstepd both deliver: one signal, not two */
    AGENT_CLOCK_WARN_S = 10, /* a difference of clocks that confuses readers of logs */
    AGENT_COUNTDOWN_MS = 10000, /* between lines about the time that is left to save */
    AGENT_HURRY_MS = 2000,      /* grace that is left after the second Ctrl-C */
    SIGNALS_LATE_MS = 30000,    /* two consoles that are flushed, then the last files */

    CRASH_RESOLVE_MS =
        1000, /* for the symbols of one that crashed: a round waits for it */
    CRASH_SHOWN_FRAMES = 8, /* all others are in the event */
    WORKER_LOOK_MS = 500, /* for the error file of one that ended: beyond that its file
                           * system hangs, which is told elsewhere */
    WORKER_LOOK_EACH_MS = 4, /* for each file more, as the network may be slow */

    /* The template of --warm. */
    TEMPLATE_FORK_MS = 3000,    /* for a batch, */
    TEMPLATE_FORK_EACH_MS = 50, /* and for each of its workers: some 10 ms if idle; */
    TEMPLATE_FORK_SPARE_MS =
        1000, /* this node is not heard meanwhile: so much of its lease is left then */
    TEMPLATE_END_MS = 1000,  /* from its socket's end to its own */
    TEMPLATE_LOSSES_MAX = 3, /* then it is not started again */
    TEMPLATE_SPARED_MS =
        1000, /* of a kill: then what does not go takes the template with it */

    /* Output. */
    OUTPUT_PIECE_MAX_BYTES =
        64 * 1024, /* a longer line is cut: others must get their turn */
    OUTPUT_PIPE_BYTES = 256 * 1024, /* fewer changes between worker and agent: what is
                                     * written in one go is read in one go */
    OUTPUT_PIPE_FULL_BYTES =
        60 * 1024, /* as much in one read: a pipe of 64 KB, the default, was full */
    OUTPUT_PIPE_WORKERS_MAX =
        64, /* with more, an account's share of pipe memory would be used up */
    OUTPUT_READ_BYTES = OUTPUT_PIPE_BYTES,
    OUTPUT_PIPE_MAX_BYTES = 1024 *
                            1024, /* the most a pipe can hold at its writer's death */
    OUTPUT_QUEUE_HIGH_BYTES = 256 *
                              1024, /* a stream with more waiting is not read further */
    OUTPUT_QUEUE_LOW_BYTES = 64 * 1024,
    OUTPUT_TURN_BYTES =
        128 * 1024, /* of one stream to the console, then the next: above a piece */
    OUTPUT_TAIL_BYTES = 16 *
                        1024, /* last output that is kept: a traceback, and what exit
                                      handlers, other threads and NCCL write after it */
    OUTPUT_TAIL_LINES = 10,
    OUTPUT_BEGUN_MS =
        100, /* then a line without an end is shown: a prompt, or "Loading... " */
    OWN_RANKS_MS = 10000,      /* of a world that nobody uses: then it is looked why */
    OWN_RANKS_PAUSE_PART = 5,  /* of that is between two looks: who waits uses no CPU */
    OWN_RANKS_TICK_PART = 200, /* of that in ticks of 10 ms are 5 % of a CPU: none */
    OWN_RANKS_LOOKS = 60,      /* in a round; some take minutes to begin */
    AGENT_METRICS_MS = 2000,   /* between looks; who scrapes comes every 15 s */
    AGENT_METRICS_MESSAGES = 4, /* at a time, of some 20 KiB at most */
    AGENT_STEP_LOOK_MS = 300,   /* after a step was told: workers tell four a second */
    WORKER_FILE_CLOCK_MS =
        10, /* by so much a file's time may lag: the kernel's last tick */
    THROTTLE_REPORT_MS =
        5000,                /* between lines about what a rank's limit has left out */
    OUTPUT_FLUSH_MS = 10000, /* a console that takes nothing for so long is given up */

    /* Lines that are collapsed. */
    CONSOLE_DEDUP_DELAY_MS =
        200, /* a line waits for its like: more would look like a hang */
    CONSOLE_DEDUP_WAIT_MAX_BYTES = 1024 * 1024,

    /* Log files. */
    LOGFILE_HIGH_BYTES = 512 *
                         1024, /* a stream with more waiting is not read further */
    LOGFILE_QUEUE_MAX_BYTES = 2 * LOGFILE_HIGH_BYTES +
                              OUTPUT_PIPE_MAX_BYTES, /* last words come on top */
    LOGFILE_WRITE_BYTES = 256 * 1024, /* one write: a sign of life in between */
    LOGFILE_STALL_MS = 5000, /* without a sign of life: workers are held back no more */
    LOGFILE_FLUSH_MS = 10000,       /* at the end of the run */
    LOGFILE_STALLED_FLUSH_MS = 500, /* when nothing came back before either */
    LOGFILE_PATH_SHOWN_BYTES = 512,

    AGENT_NODES_MAX = 65535, /* the server's, who needs not be asked to refuse more */

    /* Link to the rendezvous server. */
    LINK_IN_MAX_BYTES = 128 * 1024, /* two largest frames */
    LINK_OUT_MAX_BYTES = 512 *
                         1024, /* a server that reads nothing is lost long before */
    LINK_ATTEMPT_MS =
        4000, /* one address that swallows packets must not eat the time; the kernel says
               * after 3 s that no machine has it */
    LINK_PAUSE_FIRST_MS = 20,
    LINK_PAUSE_MAX_MS = 1000,
    LINK_PAUSE_FOUND_MS =
        50, /* where addresses are found out: a new host may have been elected */
    LINK_CONNECTING_FIRST_MS = 5000, /* then people hear where nobody answers */
    LINK_CONNECTING_MS = 10000,      /* between lines for people while nobody answers */
    LINK_RESUME_PAUSE_MS =
        250, /* the lease is short, and a restarted server is quick */
    LINK_RESUME_ATTEMPT_MS = 1000, /* so that there are some within a lease */
    LINK_RECONNECT_MS =
        4000, /* a server that is gone may be restarted; the batch system waits */
    LINK_RECONNECT_MIN_MS = 500, /* of it, when all of it was used to resume */
    LINK_RETURN_MS = 60000,      /* one that is silent may be behind a loose cable */

    /* The way to group rank 0. */
    REACHABILITY_STAGGER_MS =
        250, /* "happy eyeballs" (RFC 8305): then the next address too */
    REACHABILITY_ATTEMPT_MS =
        1000, /* of the last address in the first pass, doubled in each */
    REACHABILITY_PASSES = 3,
    REACHABILITY_PAUSE_MS =
        500, /* after the first pass, twice as long after the second */

    AGENT_HOLD_MS = 15000, /* all that before is over by then, on every node */

    /* Uninterruptible sleep. */
    DSTATE_SLEEPERS_MAX = 256,
    DSTATE_LOOKS = 4, /* per limit: it is passed by a quarter at most */
    DSTATE_PERIOD_MIN_MS = 20,
    DSTATE_PERIOD_MAX_MS = 5000,

    /* A rank that tells no more steps. */
    HANG_HESITATE_MAX_MS =
        5000,               /* another node with a better suspect is to speak first */
    STACKS_WRITE_MS = 2000, /* what /proc says, into files */
    STACKS_DEBUG_MS =
        5000,       /* debuggers: reading the symbols of a framework takes long */
    PLACE_MS = 200, /* the frames of one Python */
    STACKS_TEXT_MAX_BYTES = 4 * 1024 * 1024, /* of an answer to ctrunctl */
    STACKS_GATHER_MS = 2500,                 /* for other nodes to tell theirs */
    STACKS_DEBUGGERS_MAX = 16,
    STACKS_THREADS_MAX = 256,

    /* What ranks are in that tell no steps. */
    STUCK_PERIOD_PARTS = 10, /* of the limit is between two looks at what workers do, */
    STUCK_PERIOD_MIN_MS = 50,
    STUCK_PERIOD_MAX_MS =
        1000, /* at most: by so much a stuck rank may be told too late */
    STUCK_LOOK_PARTS =
        4, /* of the limit is between two looks at what they are in, which costs more */
    STUCK_LOOK_MIN_MS = 250,
    STUCK_NOBODY_MS = 10000, /* a Python on a busy machine may take long to be one */
    STUCK_LOOK_BYTES = 64,   /* what a worker reads because it is asked */
    STUCK_GROWS_MIB = 4,  /* loading libraries; the kernel counts less than that late */
    STUCK_AGAIN_MS = 300, /* told, and the server had seen progress elsewhere */
    RECORDER_TAKE_MS =
        1500,            /* all workers; one answers in 60 ms if nothing else runs */
    RECORDER_BATCH = 64, /* connections at a time */
    RECORDER_TEXT_MAX_BYTES = 4 * 1024 * 1024, /* 2,000 calls take 1.5 MB */
    RECORDER_DUMPS_MAX_BYTES = 64 * 1024 *
                               1024, /* of all workers, until the next look */
    WORKER_LOOK_ALL_MS = 3000,       /* then with those that were seen by then */

    /* Stragglers: a look comes when what the last one took is one part in so many of the time since. */
    STRAGGLER_COST_PARTS = 200,
    STRAGGLER_PERIOD_MIN_MS = 1000,
    STRAGGLER_PERIOD_MAX_MS = 60000,
    CLOCK_ASK_FIRST_MS = 250, /* until enough is known of the server's clock */
    CLOCK_ASK_MS = 5000,

    /* File timer. */
    FILE_TIMER_TIMERS_MAX = 1024,     /* scopes that are open at once: a few a worker */
    FILE_TIMER_LINE_MAX_BYTES = 4096, /* PIPE_BUF: what a writer can put down whole */
    FILE_TIMER_TIMEOUT_MAX_S = 10 * 365 * 24 * 3600,

    /* Workers' socket. */
    WORKER_SOCKET_HELLO_MS = 5000, /* a client that sends nothing is closed */
    WORKER_SOCKET_IN_MAX_BYTES = 4096,
    WORKER_SOCKET_CONNECTIONS_PER_WORKER = 4,

    /* Checkpoints that are held for workers. */
    HOLD_WRITERS_MAX = 4,  /* threads: more make no disk faster */
    HOLD_WRITE_MS = 60000, /* from the commit to the disk, and so much longer ... */
    HOLD_WRITE_BYTES_PER_MS =
        10000, /* ... as 10 MB/s take: a slower one counts as hung */

    /* The last calls of workers, saved at a failure. */
    FLIGHT_CALLS_MAX = 4096, /* of all workers together */
    FLIGHT_FILE_MAX_BYTES = 4 * 1024 * 1024,
    FLIGHT_WRITE_MS = 2000,

    /* ctrunctl's socket. */
    AGENT_GPU_ANSWER_MS = 2000,     /* after --gpu-wait: then the driver hangs */
    CTL_SOCKET_IN_MAX_BYTES = 8192, /* a request with the longest command */
    CTL_SOCKET_CLIENTS_MAX = 16,    /* people and their scripts */
    CTL_SOCKET_CLIENT_MS = 10000,   /* from connect to the last byte of the answer */
    CTL_SOCKET_LATER_MS =
        5000, /* for the rendezvous to answer what it was asked for a client */
    CTL_SOCKET_REPLY_MAX_BYTES = 16 * 1024 *
                                 1024, /* AGENT_WORKERS_MAX with long paths */
};
