/* SPDX-License-Identifier: Apache-2.0 */
/* Caps and periods of the node agent, each with its reason. */
#pragma once

enum {
    AGENT_WORKERS_MAX =
        4096, /* slots of one node; a CPU node has a few hundred cores */

    /* Room for descriptors that is reserved at the start (descriptors.h); more may be opened
     * later. */
    AGENT_DESCRIPTORS = 64,
    AGENT_DESCRIPTORS_PER_WORKER =
        9, /* two pipes, two files, the SDK's socket and three records, a store's */

    /* Stopping. */
    AGENT_KILL_WAIT_MS =
        10000, /* a process that survives SIGKILL for longer hangs in the kernel */
    AGENT_ORPHAN_MS =
        200, /* for processes of a dead worker (tee, loaders) to end by themselves */
    AGENT_HELPER_MS =
        2000, /* for processes that a worker started and left running when it ended */
    /* between looks whether processes that may save still run */
    AGENT_HELPER_RESCAN_MS = 200,
    /* for ranks to leave a collective before the next cut; then doubled, because a rank may connect
     * just after a cut */
    AGENT_CUT_MS = 10,
    AGENT_CUT_MAX_MS = 1000, /* the most after doubling */
    AGENT_START_MS = 100,    /* most workers have started by then */
    AGENT_RESCAN_MS = 20,    /* between looks at /proc while processes have to end */
    AGENT_SIGNAL_DEDUP_MS =
        200, /* guard and slurmstepd both deliver it: count it as one signal */
    AGENT_CLOCK_WARN_S = 10,    /* a clock difference that confuses readers of logs */
    AGENT_COUNTDOWN_MS = 10000, /* between lines about the time left to save */
    /* before the end of the grace, at most: workers that ask whether they should stop, and have not, get the signal */
    AGENT_SPARED_MS = 1000,
    AGENT_HURRY_MS = 2000, /* grace time left after the second Ctrl-C */
    /* time to flush two consoles and to write the last files */
    SIGNALS_LATE_MS = 30000,

    CRASH_RESOLVE_MS =
        1000, /* to find the symbols of a crashed worker: the next round waits for it */
    CRASH_SHOWN_FRAMES = 8, /* the event has all the others */
    /* for the error file of a worker that ended: after that, its file system hangs, which another
     * check reports */
    WORKER_LOOK_MS = 500,
    WORKER_LOOK_EACH_MS = 4, /* for each further file, as the network may be slow */
    SHM_LOOK_MS = 500,       /* to find which of our processes hold files of /dev/shm */
    /* To find which of all processes hold them: else they stay. The loop waits for it: with a short
     * lease less (agent/process/shm.h) */
    SHM_REMOVE_MS = 3000,

    /* The template of --warm. */
    TEMPLATE_FORK_MS = 3000,    /* for a batch, plus */
    TEMPLATE_FORK_EACH_MS = 50, /* per worker of it: about 10 ms on an idle machine */
    /* left of the lease after a batch, in which the node sends no heartbeat */
    TEMPLATE_FORK_SPARE_MS = 1000,
    TEMPLATE_END_MS = 1000,  /* from the end of its socket to the end of the process */
    TEMPLATE_LOSSES_MAX = 3, /* after so many losses it is not started again */
    /* of AGENT_KILL_WAIT_MS; then the template is killed with the processes that are left */
    TEMPLATE_SPARED_MS = 1000,

    /* Output. */
    /* a longer line is cut, so that other streams get their turn */
    OUTPUT_PIECE_MAX_BYTES = 1024 * 1024,
    /* larger than the default: fewer switches between worker and agent */
    OUTPUT_PIPE_BYTES = 256 * 1024,
    OUTPUT_PIPE_FULL_BYTES =
        60 * 1024, /* a read of so many bytes: a pipe of 64 KB, the default, was full */
    OUTPUT_PIPE_WORKERS_MAX =
        64, /* more would use up the user's limit of pipe memory */
    OUTPUT_READ_BYTES = OUTPUT_PIPE_BYTES,
    OUTPUT_PIPE_MAX_BYTES = 1024 *
                            1024, /* the most a pipe can hold when its writer dies */
    OUTPUT_QUEUE_HIGH_BYTES = 256 *
                              1024, /* a stream with more waiting is not read further */
    OUTPUT_QUEUE_LOW_BYTES = 64 * 1024,
    /* written from one stream before the next has its turn: more than a piece and its prefix */
    OUTPUT_TURN_BYTES = OUTPUT_PIECE_MAX_BYTES + 64 * 1024,
    /* last output that is kept: a traceback, and the lines of exit handlers, other threads and NCCL
     * after it */
    OUTPUT_TAIL_BYTES = 16 * 1024,
    OUTPUT_TAIL_LINES = 10,
    OUTPUT_BEGUN_MS =
        100, /* after this a line without an end is shown: a prompt, or "Loading... " */
    OUTPUT_BEGUN_FAST_BYTES = 4096, /* so many in that time are no prompt */
    /* a world is unused for so long: look for ranks that workers started themselves */
    OWN_RANKS_MS = 10000,
    /* a rank has ended with 0 for so long while others run: reported */
    AGENT_EARLY_MS = 60000,
    /* the two looks are this part of OWN_RANKS_MS apart; a process that waits uses no CPU */
    OWN_RANKS_PAUSE_PART = 5,
    /* ticks of 10 ms allowed between them: this part of the pause in ms, 5 % of a CPU */
    OWN_RANKS_TICK_PART = 200,
    /* pairs of looks in a round; some programs take minutes to begin */
    OWN_RANKS_LOOKS = 60,
    /* no rank has connected to the worker store for so long, and some have not: reported */
    AGENT_ABSENT_MS = 10000,
    /* looks for such ranks: two in this time; from the 13th on one in six times this time */
    AGENT_ABSENT_FIRST_LOOKS = 12,
    AGENT_ABSENT_LOOKS = 60,
    /* ticks of 10 ms that a rank may use between two looks and counts as waiting: this part of the time
     * in ms, 5 % of a CPU */
    AGENT_ABSENT_TICK_PART = 200,
    AGENT_ABSENT_NODES_MAX = 32, /* whose ranks are named */
    /* between looks; metrics are usually scraped every 15 s */
    AGENT_METRICS_MS = 2000,
    AGENT_METRICS_MESSAGES = 4, /* at a time, of some 20 KiB at most */
    /* after a step was reported: workers report four a second */
    AGENT_STEP_LOOK_MS = 300,
    WORKER_FILE_CLOCK_MS =
        10, /* a file's time may lag by so much: it is the kernel's last tick */
    /* between lines about output dropped by a rank's rate limit */
    THROTTLE_REPORT_MS = 5000,
    /* a console that accepts nothing for so long is given up */
    OUTPUT_FLUSH_MS = 10000,
    /* the same at the end, after a second Ctrl-C or once a signal comes in that wait */
    OUTPUT_HURRY_MS = 2000,

    /* Line de-duplication (--collapse). */
    CONSOLE_DEDUP_DELAY_MS =
        200, /* a line waits for equal lines: a longer wait would look like a hang */
    CONSOLE_DEDUP_WAIT_MAX_BYTES = 1024 * 1024,

    /* Log files. */
    LOGFILE_HIGH_BYTES = 512 *
                         1024, /* a stream with more waiting is not read further */
    /* room for a dead worker's last output, and the line that it continues */
    LOGFILE_QUEUE_MAX_BYTES = 2 * LOGFILE_HIGH_BYTES + OUTPUT_PIECE_MAX_BYTES +
                              OUTPUT_PIPE_MAX_BYTES,
    /* one write: each that returns counts as progress */
    LOGFILE_WRITE_BYTES = 256 * 1024,
    /* without progress: then workers are no longer held back */
    LOGFILE_STALL_MS = 5000,
    LOGFILE_FLUSH_MS = 10000, /* at the end of the run */
    /* the same, if the file system had stopped answering before */
    LOGFILE_STALLED_FLUSH_MS = 500,
    LOGFILE_PATH_SHOWN_BYTES = 512,

    AGENT_NODES_MAX = 65535, /* the server's own limit: checked here before asking it */

    /* Link to the rendezvous server. */
    LINK_IN_MAX_BYTES = 128 * 1024, /* two largest frames */
    /* a server that reads nothing is declared lost long before */
    LINK_OUT_MAX_BYTES = 512 * 1024,
    /* so that one address that drops packets does not use up the time; the kernel reports after 3 s
     * that no machine has the address */
    LINK_ATTEMPT_MS = 4000,
    LINK_PAUSE_FIRST_MS = 20,
    LINK_PAUSE_MAX_MS = 1000,
    /* when find_servers gives the addresses: a new server may have been elected */
    LINK_PAUSE_FOUND_MS = 50,
    /* then a line tells people which address does not answer */
    LINK_CONNECTING_FIRST_MS = 5000,
    LINK_CONNECTING_MS = 10000, /* between such lines */
    LINK_RESUME_PAUSE_MS =
        250, /* short, as the lease is short and a restarted server answers soon */
    /* short, so that several attempts fit into a lease */
    LINK_RESUME_ATTEMPT_MS = 1000,
    /* for a server that ended: it may be restarted; the batch system waits meanwhile */
    LINK_RECONNECT_MS = 4000,
    LINK_RECONNECT_MIN_MS = 500, /* at least, when resuming has used up that time */
    /* for a silent server: it may be behind a loose cable */
    LINK_RETURN_MS = 60000,

    /* Reachability of group rank 0. */
    REACHABILITY_STAGGER_MS =
        250, /* "happy eyeballs" (RFC 8305): then the next address is tried as well */
    REACHABILITY_ATTEMPT_MS =
        1000, /* for the last address in the first pass, doubled in each pass */
    REACHABILITY_PASSES = 3,
    REACHABILITY_PAUSE_MS =
        500, /* after the first pass, twice as much after the second */

    AGENT_HOLD_MS = 15000, /* longer than the whole search above, on every node */

    /* Uninterruptible sleep. */
    DSTATE_SLEEPERS_MAX = 256,
    /* per limit: a report is late by a quarter of the limit at most */
    DSTATE_LOOKS = 4,
    DSTATE_PERIOD_MIN_MS = 20,
    DSTATE_PERIOD_MAX_MS = 5000,

    /* A rank that reports no more steps. */
    /* at most, so that a node with a better suspect reports first */
    HANG_HESITATE_MAX_MS = 5000,
    STACKS_WRITE_MS = 2000, /* to write what /proc says into files */
    /* of the time for stacks: for the calls of flight recorders, before the stacks */
    STACKS_CALLS_PARTS = 4,
    STACKS_LAST_PARTS = 8, /* ... that the last stack may take */
    STACKS_DEBUG_MS =
        5000,       /* for debuggers: they read the symbols of a framework slowly */
    PLACE_MS = 200, /* to read the frames of one Python process */
    STACKS_TEXT_MAX_BYTES = 4 * 1024 * 1024, /* of an answer to ctrunctl */
    STACKS_GATHER_MS = 2500,                 /* for other nodes to send theirs */
    STACKS_DEBUGGERS_MAX = 16,
    STACKS_THREADS_MAX = 256,

    /* After a loss (--survive), and after a time-out. */
    /* between looks at steps after a recovery; longer by this part of the time since */
    RECOVERY_LOOK_MS = 2,
    RECOVERY_LOOK_PARTS = 16,
    /* a collective has timed out: for all looks at the others, while the loop waits */
    TIMEOUT_LOOK_MS = 1000,
    /* between the looks: a rank that has lost another one ends meanwhile */
    TIMEOUT_PAUSE_MS = 250,

    /* What ranks that report no steps are doing. */
    STUCK_PERIOD_PARTS = 10, /* looks at workers are this part of the limit apart, */
    STUCK_PERIOD_MIN_MS = 50,
    STUCK_PERIOD_MAX_MS =
        1000, /* at most: a stuck rank is reported this much late in the worst case */
    /* looks at their calls are this part of the limit apart: such a look costs more */
    STUCK_LOOK_PARTS = 4,
    STUCK_LOOK_MIN_MS = 250,
    /* a Python that starts on a busy machine may not be readable for so long */
    STUCK_NOBODY_MS = 10000,
    STUCK_LOOK_BYTES = 64, /* bytes that a worker reads only because of the look */
    /* when libraries are loaded; less may be the kernel's delayed count */
    STUCK_GROWS_MIB = 4,
    /* after a report that brought no STOP: the server knows of progress elsewhere */
    STUCK_AGAIN_MS = 300,
    RECORDER_TAKE_MS =
        1500,            /* for all workers; one answers in 60 ms on an idle machine */
    RECORDER_BATCH = 64, /* workers that are asked at a time */
    RECORDER_TEXT_MAX_BYTES = 4 * 1024 * 1024, /* 2,000 calls take 1.5 MB */
    RECORDER_DUMPS_MAX_BYTES = 64 * 1024 *
                               1024, /* of all workers, until the next look */
    /* then the result has only the workers seen by then */
    WORKER_LOOK_ALL_MS = 3000,

    /* Stragglers: the next look comes when the last one's duration is one part in so many of the
     * time since. */
    STRAGGLER_COST_PARTS = 200,
    STRAGGLER_PERIOD_MIN_MS = 1000,
    STRAGGLER_PERIOD_MAX_MS = 60000,
    CLOCK_ASK_FIRST_MS = 250, /* until enough samples of the server's clock are there */
    CLOCK_ASK_MS = 5000,

    /* File timer. */
    /* scopes open at the same time: a few per worker */
    FILE_TIMER_TIMERS_MAX = 1024,
    /* PIPE_BUF: the most that a writer can write atomically */
    FILE_TIMER_LINE_MAX_BYTES = 4096,
    FILE_TIMER_TIMEOUT_MAX_S = 10 * 365 * 24 * 3600,

    /* between tries to accept a connection for which no descriptor was left */
    LOOP_LISTENER_PAUSE_MS = 100,

    /* Workers' socket. */
    WORKER_SOCKET_HELLO_MS = 5000, /* a client that sends nothing is closed */
    WORKER_SOCKET_IN_MAX_BYTES = 4096,
    /* one of the session and two to hold files, two of a forked child that holds files, one more */
    WORKER_SOCKET_CONNECTIONS_PER_WORKER = 6,

    /* Checkpoints that are held for workers. */
    HOLD_WRITERS_MAX = 4,  /* threads: more do not make a disk faster */
    HOLD_WRITE_MS = 60000, /* from the commit to the disk, plus the time ... */
    HOLD_WRITE_BYTES_PER_MS = 10000, /* ... at 10 MB/s: a slower disk counts as hung */

    /* The last calls of workers, saved at a failure. */
    FLIGHT_CALLS_MAX = 4096, /* of all workers together */
    FLIGHT_FILE_MAX_BYTES = 4 * 1024 * 1024,
    FLIGHT_WRITE_MS = 2000,

    /* ctrunctl's socket. */
    /* after --gpu-wait: then the driver counts as hung */
    AGENT_GPU_ANSWER_MS = 2000,
    CTL_SOCKET_IN_MAX_BYTES = 8192, /* a request with the longest command */
    CTL_SOCKET_CLIENTS_MAX = 16,    /* people and their scripts */
    CTL_SOCKET_CLIENT_MS = 10000,   /* from connect to the last byte of the answer */
    CTL_SOCKET_LATER_MS =
        5000, /* for the rendezvous to answer a question of a client */
    /* for AGENT_WORKERS_MAX workers with long paths */
    CTL_SOCKET_REPLY_MAX_BYTES = 16 * 1024 * 1024,
};
