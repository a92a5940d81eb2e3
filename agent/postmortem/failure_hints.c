/* SPDX-License-Identifier: Apache-2.0 */
/* The first row that fits counts. Texts say more than codes, so their rows come first, and among
 * these causes before consequences. The texts are those of glibc's ld.so (elf/dl-load.c,
 * elf/dl-version.c), malloc and abort(), of CPython's exceptions and argparse, of PyTorch, CUDA
 * and NCCL. The text between `before` and `after` is a name. */
#include "agent/postmortem/failure_hints.h"

#include <errno.h>
#include <signal.h>

#include "agent/postmortem/facts.h"
#include "agent/postmortem/traceback.h"
#include "worker_sdk/base/str.h"

enum {
    NAME_MAX_BYTES = 200,
    HARDWARE_LINE_MAX = 200
};

struct row {
    uint8_t cause; /* enum ct_cause; NONE: EXIT or SIGNAL */
    int32_t code;  /* 0: any */
    /* text in front of the name, in the last output; NULL: the output does not matter */
    const char *before;
    const char *after;  /* text behind the name; "\n": the end of its line */
    const char *likely; /* text of the hint, in front of the name */
    const char *rest;   /* text of the hint, behind the name */
    const char *remedy; /* what to do; NULL: the summary has it */
    /* programs may recover from it: counts only in the exception or the last line */
    bool is_last;
    bool is_hardware; /* the text says that a machine is broken, or may be */
    enum failure_victim
        victim; /* ... that another rank, or the network, is the cause */
};

#define WORDS(BEFORE, AFTER, LIKELY, REST, REMEDY)                                     \
    {                                                                                  \
        CT_CAUSE_NONE, 0, BEFORE, AFTER, LIKELY, REST, REMEDY, false, false,           \
            FAILURE_NO_VICTIM                                                          \
    }
#define PRINTED(WORD, LIKELY, REMEDY) WORDS(WORD, "", LIKELY, "", REMEDY)
#define PRINTED_LAST(WORD, LIKELY, REMEDY)                                             \
    {                                                                                  \
        CT_CAUSE_NONE, 0, WORD, "", LIKELY, "", REMEDY, true, false, FAILURE_NO_VICTIM \
    }
#define BROKEN(WORD, LIKELY, REMEDY)                                                   \
    {                                                                                  \
        CT_CAUSE_NONE, 0, WORD, "", LIKELY, "", REMEDY, false, true, FAILURE_NO_VICTIM \
    }
#define VICTIM(WORD, OF, LIKELY, REMEDY)                                               \
    {                                                                                  \
        CT_CAUSE_NONE, 0, WORD, "", LIKELY, "", REMEDY, (OF) == FAILURE_OF_END, false, \
            OF                                                                         \
    }
#define SIGNAL(NUMBER, LIKELY, REMEDY)                                                 \
    {                                                                                  \
        CT_CAUSE_SIGNAL, NUMBER, NULL, NULL, LIKELY, "", REMEDY, false, false,         \
            FAILURE_NO_VICTIM                                                          \
    }
#define EXIT(CODE, LIKELY, REMEDY)                                                     \
    {                                                                                  \
        CT_CAUSE_EXIT, CODE, NULL, NULL, LIKELY, "", REMEDY, false, false,             \
            FAILURE_NO_VICTIM                                                          \
    }
#define EXEC(ERRNO, LIKELY, REMEDY)                                                    \
    {                                                                                  \
        CT_CAUSE_EXEC, ERRNO, NULL, NULL, LIKELY, "", REMEDY, false, false,            \
            FAILURE_NO_VICTIM                                                          \
    }

static const char no_library[] = ": cannot open shared object file";

static const struct row rows[] = {
    /* ---- It did not start properly ---- */
    WORDS("error while loading shared libraries: ", ": ",
          "the program could not be loaded: shared library ",
          " is missing or unusable on this node",
          "ldd the program on this node; install the library, or set LD_LIBRARY_PATH"),
    WORDS("ImportError: ", no_library,
          "Python could not load an extension module: shared library ",
          " is missing on this node",
          "install the library on this node, or set LD_LIBRARY_PATH"),
    WORDS(": version `", "' not found", "the program or one of its libraries needs ",
          ", which a library of this node does not have",
          "build it on this system, or use the same image on all nodes"),
    WORDS("ModuleNotFoundError: No module named '", "'", "Python finds no module ",
          " on this node",
          "install it for the interpreter that runs the program (for a .py file: "
          "PYTHON_EXEC, or the first python3 in PATH); check PYTHONPATH"),
    WORDS(
        "ImportError: cannot import name '", "'", "a Python module has no ",
        ": another version of it, or a circular import",
        "compare the version of that module with the one the program was written for"),
    WORDS("can't open file '", "'", "Python cannot open the script ", " on this node",
          "check its path and permissions and the working directory; do all nodes see "
          "that file system?"),
    PRINTED(
        "\\r’: No such file",
        "the #! line of a script ends in CR LF, as on Windows: the CR counts as part "
        "of the "
        "interpreter's name",
        "sed -i 's/\\r$//' on the script"),
    PRINTED(
        "\\r': No such file",
        "the #! line of a script ends in CR LF, as on Windows: the CR counts as part "
        "of the "
        "interpreter's name",
        "sed -i 's/\\r$//' on the script"),
    WORDS("SyntaxError: ", "\n", "Python cannot parse the code (", ")",
          "fix the file that the traceback names, or run it with the Python it was "
          "written for"),
    PRINTED("error: unrecognized arguments: --local-rank=",
            "the program has no option --local-rank, which ctrun-launch and "
            "torch.distributed.launch put in front of its arguments",
            "start it with --use-env, or with ctrun, and read LOCAL_RANK from the "
            "environment; or let it accept --local-rank as well as --local_rank"),
    PRINTED("the following arguments are required: --local",
            "the program requires --local_rank, which torch.distributed.launch added; "
            "ctrun and torchrun set LOCAL_RANK in the environment",
            "read os.environ['LOCAL_RANK']; or let it accept --local-rank as well and "
            "start it with ctrun-launch, which adds --local-rank=N"),
    WORDS("error: unrecognized arguments: ", "\n", "the program has no such argument: ",
          "", "see the program's own --help; options of ctrun come before the program"),

    /* ---- GPU ---- */
    PRINTED("CUDA out of memory", "GPU memory is full, not host memory",
            "smaller batches; is another process on the GPU (nvidia-smi)?"),
    PRINTED("CUDA error: out of memory", "GPU memory is full, not host memory",
            "smaller batches; is another process on the GPU (nvidia-smi)?"),
    PRINTED("CUDNN_STATUS_ALLOC_FAILED", "cuDNN could not allocate GPU memory",
            "smaller batches; is another process on the GPU (nvidia-smi)?"),
    PRINTED("CUBLAS_STATUS_ALLOC_FAILED", "cuBLAS could not allocate GPU memory",
            "smaller batches; is another process on the GPU (nvidia-smi)?"),
    BROKEN("fallen off the bus", "the GPU does not answer on PCIe any more (Xid 79)",
           "take the node out and power cycle it; check the GPU's power, cooling and "
           "slot"),
    BROKEN("Uncontained ECC error",
           "the GPU's memory has errors that ECC cannot correct (Xid 95)",
           "take the node out and have the GPU reset; nvidia-smi -q -d ECC"),
    BROKEN("Contained ECC error",
           "the GPU's memory has an error that ECC cannot correct; only programs that "
           "used it are affected (Xid 94)",
           "start again; reset the GPU when it is idle; see nvidia-smi -q -d "
           "ROW_REMAPPER"),
    BROKEN("Double Bit ECC",
           "the GPU's memory has errors that ECC cannot correct (Xid 48)",
           "take the node out and have the GPU reset; nvidia-smi -q -d ECC"),
    BROKEN("waiting for RPC from GSP",
           "the GPU's system processor (GSP) does not answer (Xid 119)",
           "take the node out and reset the GPU; try a newer driver"),
    WORDS("NVRM: Xid (", "\n", "the driver reports an error of a GPU: Xid (", "",
          "look up the number in NVIDIA's list of Xid errors; see dmesg and nvidia-smi "
          "-q"),
    PRINTED(
        "CUDNN_STATUS_NOT_INITIALIZED",
        "cuDNN could not start: often no GPU memory is left, or versions do not match",
        "nvidia-smi; compare the cuDNN of the program with the installed one"),
    PRINTED(
        "CUDNN_STATUS_EXECUTION_FAILED",
        "a kernel of cuDNN failed; the call that reports it may be a later one",
        "CUDA_LAUNCH_BLOCKING=1 shows which call; nvidia-smi -q for errors of the GPU"),
    PRINTED("Cannot re-initialize CUDA in forked subprocess",
            "a process was forked after its parent had used CUDA",
            "use the multiprocessing start method 'spawn', or call CUDA only after "
            "the other processes have started"),
    PRINTED("unspecified launch failure",
            "a kernel failed; the call that reports it may be a later one",
            "CUDA_LAUNCH_BLOCKING=1 shows which call; dmesg for an Xid"),
    PRINTED("invalid device ordinal",
            "the program asked for a GPU that this process cannot use",
            "compare --nproc-per-node and LOCAL_RANK with nvidia-smi -L and "
            "CUDA_VISIBLE_DEVICES"),
    PRINTED(
        "no kernel image is available for execution on the device",
        "the program was not built for this GPU",
        "build for its architecture (nvidia-smi --query-gpu=compute_cap --format=csv)"),
    PRINTED("CUDA driver version is insufficient",
            "this node's driver is older than the program's CUDA",
            "a newer driver on this node, or a build for its CUDA (nvidia-smi)"),
    BROKEN(
        "uncorrectable ECC error",
        "the GPU's memory has errors that ECC cannot correct",
        "nvidia-smi -q -d ECC; take the node out and have the GPU reset or replaced"),
    PRINTED(
        "device-side assert triggered",
        "a check in a kernel failed: often a class or an index that is out of range",
        "CUDA_LAUNCH_BLOCKING=1 shows which call"),
    PRINTED("illegal memory access was encountered",
            "a kernel accessed an address where it has no memory; the call that "
            "reports it may be a later one",
            "CUDA_LAUNCH_BLOCKING=1 shows which call, compute-sanitizer which access"),
    PRINTED("Found no NVIDIA driver", "this node or container has no NVIDIA driver",
            "nvidia-smi on the node; in a container --gpus all or --nv"),
    PRINTED("No CUDA GPUs are available", "the program sees no GPU here",
            "nvidia-smi -L; CUDA_VISIBLE_DEVICES; ask the batch system for GPUs"),
    PRINTED("no CUDA-capable device is detected", "the program sees no GPU here",
            "nvidia-smi -L; CUDA_VISIBLE_DEVICES; ask the batch system for GPUs"),

    PRINTED(
        "CUDA-capable device(s) is/are busy or unavailable",
        "the GPU accepts no further program: it is exclusive and in use, or "
        "prohibited, or its MPS server has failed",
        "nvidia-smi -q -d COMPUTE shows the mode, nvidia-smi who uses it; with MPS, "
        "end nvidia-cuda-mps-control and start it again"),

    /* ---- Shared memory, before NCCL's errors that follow from it ---- */
    PRINTED(
        "Error while creating shared memory segment",
        "NCCL could not create a file in /dev/shm: usually there is no room left",
        "df -h /dev/shm; docker run --shm-size=1g, an emptyDir of medium Memory there"),
    PRINTED("insufficient shared memory (shm)",
            "a loader process got a bus error: usually /dev/shm has no room for the "
            "data loader",
            "df -h /dev/shm; docker run --shm-size=1g, or fewer loader processes"),

    /* ---- Limits of the node ---- */
    PRINTED("No space left on device", "a file system is full, or has no inodes left",
            "df -h and df -i where it writes: checkpoints, /tmp, /dev/shm"),
    PRINTED("Disk quota exceeded", "the account's quota on a file system is used up",
            "quota -s, or the site's own command; remove files or write elsewhere"),
    PRINTED("Too many open files", "the limit of open files is reached (ulimit -n)",
            "raise it, or fewer loader processes; PyTorch: "
            "set_sharing_strategy('file_system')"),
    PRINTED(
        "can't start new thread", "the limit of processes and threads is reached",
        "ulimit -u, the cgroup's pids.max; fewer loader processes or OMP_NUM_THREADS"),
    PRINTED("Cannot fork", "the limit of processes and threads is reached",
            "ulimit -u, the cgroup's pids.max; fewer processes"),
    PRINTED("fork: retry: Resource temporarily unavailable",
            "the limit of processes and threads is reached",
            "ulimit -u, the cgroup's pids.max; fewer processes"),
    PRINTED("Cannot allocate memory", "the kernel refused memory to the program",
            "free -h, ulimit -v, vm.overcommit_memory; fewer loader processes"),
    PRINTED("std::bad_alloc", "the kernel refused memory to the program",
            "free -h, ulimit -v, vm.overcommit_memory; fewer loader processes"),
    PRINTED("Stale file handle",
            "a file on a network file system was removed or replaced while it was "
            "open",
            "do not replace the data or the program while a job uses it; remount"),
    PRINTED_LAST(
        "Address already in use",
        "a port is taken by another process, perhaps one of an earlier job",
        "ss -ltnp names its owner; use MASTER_PORT as ctrun sets it, or port 0"),

    /* ---- Between the ranks ---- */
    PRINTED("Duplicate GPU detected", "two ranks use the same GPU",
            "choose it by LOCAL_RANK, e.g. torch.cuda.set_device(), or "
            "--virtual-local-rank"),
    PRINTED("no socket interface found",
            "NCCL finds no network interface that it may use",
            "name one of this node ('ip address' lists them) in NCCL_SOCKET_IFNAME or "
            "--net"),
    PRINTED("Call to ibv_reg_mr",
            "InfiniBand could not register memory: usually the limit of locked memory "
            "is too low",
            "ulimit -l unlimited, for the batch system's daemon, too"),
    PRINTED(
        "ibv_modify_qp failed",
        "an InfiniBand connection could not be made: often the wrong GID or link layer",
        "NCCL_IB_HCA, NCCL_IB_GID_INDEX; ibstat and show_gids on both nodes"),
    BROKEN("async event : port error",
           "a port of InfiniBand has lost its link on this node",
           "ibstat, cables; exclude the node when it happens again"),
    PRINTED(
        "with error 12, opcode",
        "the other side of an InfiniBand connection did not answer (retries used up)",
        "look at the rank that ended first; else ibstat, cables, NCCL_IB_TIMEOUT"),
    PRINTED(
        "with status=12 opcode",
        "the other side of an InfiniBand connection did not answer (retries used up)",
        "look at the rank that ended first; else ibstat, cables, NCCL_IB_TIMEOUT"),
    PRINTED("Message truncated : received",
            "two ranks are in the same call with different sizes",
            "TORCH_DISTRIBUTED_DEBUG=DETAIL names call and shapes"),
    VICTIM("collective operation timeout", FAILURE_OF_DELAY,
           "this rank waited in a collective until its timeout: another rank did not "
           "make the same call in time, or the network failed",
           "look for a rank that is behind: --hang-timeout names it, with its stack"),
    VICTIM("ms for recv operation to complete", FAILURE_OF_DELAY,
           "this rank waited for another one in a collective of Gloo until its timeout",
           "look for a rank that is behind: --hang-timeout names it, with its stack"),
    VICTIM("ms for send operation to complete", FAILURE_OF_DELAY,
           "this rank waited for another one in a collective of Gloo until its timeout",
           "look for a rank that is behind: --hang-timeout names it, with its stack"),
    VICTIM("DistStoreError: wait timeout after ", FAILURE_OF_DELAY,
           "this rank waited for a key of the worker store that another rank did not "
           "set in time",
           "look for a rank that is behind: --hang-timeout names it, with its stack"),
    VICTIM(" seconds waiting for clients.", FAILURE_OF_DELAY,
           "this rank waited in init_process_group(), and another one did not call it "
           "in time",
           "look for a rank that is behind: --hang-timeout names it, with its stack"),
    PRINTED(
        "The client socket has timed out after ",
        "this rank did not reach the worker store at MASTER_ADDR: that node is down "
        "or busy, or the network between them is cut",
        "ctrunctl doctor --net"),
    VICTIM("ncclRemoteError", FAILURE_OF_END,
           "another rank ended or its network failed: this error is a consequence",
           "look at the rank that ended first, and NCCL_DEBUG=WARN"),
    PRINTED_LAST(
        "ncclSystemError", "a system call of NCCL failed: network, memory, /dev/shm",
        "NCCL_DEBUG=WARN shows which; is NCCL_SOCKET_IFNAME right on this node?"),
    PRINTED_LAST("DataLoader worker (pid", "a process of the data loader died",
                 "num_workers=0 shows its error; look at its memory and /dev/shm"),
    VICTIM("gloo/transport/tcp/pair.cc", FAILURE_OF_END,
           "the connection of Gloo to another rank broke: it has probably ended",
           "look at the rank that ended first"),
    PRINTED_LAST("Connection reset by peer",
                 "the other side closed a connection, perhaps because it ended",
                 "look at the rank that ended first"),

    /* ---- It ended itself ---- */
    WORDS("terminate called after throwing an instance of '", "'",
          "uncaught C++ exception: ", "",
          "what() is in the last lines; gdb: catch throw"),
    WORDS("Assertion `", "' failed", "an assertion failed: ", "",
          "the last lines name its file and line"),
    PRINTED("stack smashing detected",
            "an array on the stack was written beyond its end",
            "build with -fsanitize=address"),
    PRINTED("double free or corruption", "the heap was damaged some time before this",
            "build with -fsanitize=address, or run under valgrind"),
    PRINTED("free(): invalid", "the heap was damaged some time before this",
            "build with -fsanitize=address, or run under valgrind"),
    PRINTED("malloc(): ", "the heap was damaged some time before this",
            "build with -fsanitize=address, or run under valgrind"),

    /* ---- Signals; SIGKILL is not here: its number alone does not tell the reason ---- */
    SIGNAL(SIGSEGV, "a wrong pointer, or a stack that is too small (ulimit -s)",
           "the traceback, if it has one; --core for a core file"),
    SIGNAL(SIGABRT, "the program called abort(): a failed check, or an exception",
           "its last lines; --core for a core file"),
    SIGNAL(SIGBUS, "a mapped file became shorter, or its file system is full",
           "df -h /dev/shm and where its data is; is a file replaced while in use?"),
    SIGNAL(SIGFPE, "integer division by zero, or one that overflows",
           "the traceback, if it has one; --core for a core file"),
    SIGNAL(SIGILL, "an instruction that this processor does not have",
           "compare lscpu with the node it was built on; build for an older -march"),
    SIGNAL(SIGTRAP, "a breakpoint, or a check of a library", "its last lines; --core"),
    SIGNAL(SIGSYS, "a system call that a seccomp filter forbids",
           "the container's seccomp profile (docker run --security-opt seccomp=...)"),
    SIGNAL(SIGXCPU, "the limit of processor time is used up (ulimit -t)",
           "raise it; login nodes have such limits: run in a job"),
    SIGNAL(SIGXFSZ, "a file reached the largest size that is allowed (ulimit -f)",
           "raise it, or smaller files: sharded checkpoints, rotated logs"),
    SIGNAL(SIGPIPE, "it wrote to a pipe or socket that no process reads any more",
           "check the reader: another process or rank ended first"),
    SIGNAL(SIGTERM, "a process, perhaps itself, asked it to end",
           "check the batch system, and the programs that watch this node"),
    SIGNAL(SIGINT, "a process, perhaps itself, interrupted it",
           "look for a kill -INT on this node; Ctrl-C reaches all ranks through ctrun"),
    SIGNAL(SIGHUP, "its terminal or session has ended",
           "start it with nohup, in tmux, or as a job"),
    SIGNAL(SIGUSR1, "a request that the program does not handle",
           "batch systems warn with it (--signal=USR1@60): handle it in the program, "
           "or leave out that option"),
    SIGNAL(SIGUSR2, "a request that the program does not handle",
           "batch systems warn with it (--signal=USR2@60): handle it in the program, "
           "or leave out that option"),
    SIGNAL(SIGALRM, "a timer of its own ran out, and it does not handle that",
           "look for alarm() and setitimer() in the program"),

    /* ---- Exit codes ---- */
    EXIT(2,
         "refused arguments (argparse, getopt), or a script that Python cannot open: "
         "both end with 2",
         "its last lines; its own --help; is the script at that path on this node? "
         "ctrun-launch without --use-env adds --local-rank=N"),
    EXIT(124, "timeout(1) ended it: its time limit was reached",
         "give timeout(1) a longer limit"),
    EXIT(126, "a shell found the command on this node, but may not execute it",
         "chmod +x; is its file system mounted noexec here?"),
    EXIT(127,
         "a shell did not find the command, or env(1) the interpreter, on this node",
         "check PATH on this node; do all nodes see that file system?"),
    EXIT(134, "a process that it started died of SIGABRT (128 + 6)",
         "see the last lines; start it without the shell: exec PROGRAM"),
    EXIT(135, "a process that it started died of SIGBUS (128 + 7)",
         "df -h /dev/shm; start it without the shell: exec PROGRAM"),
    EXIT(137,
         "a process that it started was killed (128 + SIGKILL), perhaps for lack of "
         "memory",
         "journalctl -k; ctrun reports more if there is no shell in between: exec "
         "PROGRAM"),
    EXIT(139, "a process that it started died of SIGSEGV (128 + 11)",
         "start it without the shell: exec PROGRAM"),
    EXIT(143, "it, or a process that it started, was asked to end (128 + SIGTERM)",
         "check the batch system, ctrunctl signal, and the programs that watch this "
         "node"),
    EXIT(255, "exit(-1), or ssh could not connect", "see the last lines"),

    /* ---- Never ran ---- */
    EXEC(ENOENT, "it is not on this node, or its interpreter (#! line, ld.so) is not",
         NULL),
    EXEC(EACCES, "it may not be executed: chmod +x, or a file system mounted noexec",
         NULL),
    EXEC(ENOEXEC, "a script without a #! line, or a program of another architecture",
         "file PROGRAM; uname -m; a script needs its interpreter in a #! line"),
    EXEC(E2BIG, "arguments and environment are too long together",
         "pass long lists in a file, unset large variables, or raise ulimit -s"),
    EXEC(ETXTBSY, "it is being written at this moment: a build, a copy",
         "start the run again when that is over"),
};

enum {
    ROW_COUNT = sizeof rows / sizeof *rows
};

static const struct failure_rule *own_rules; /* of --failure-rules */
static int own_count;

void failure_hints_use(const struct failure_rule *rules, int count)
{
    own_rules = rules;
    own_count = count;
}

/* The text between `before` and `after`. */
struct name {
    const char *at;
    int length;
};

/* The last match counts: the program may have recovered from an earlier one. */
static bool find_name(const struct row *row, const char *text, struct name *name)
{
    const char *at = traceback_find_last(text, row->before);
    const char *end;

    if (!at)
        return false;
    at += strlen(row->before);
    end = *row->after == '\n' ? at + strcspn(at, "\n") : strstr(at, row->after);
    if (!end || memchr(at, '\n', (size_t)(end - at)) || end - at > NAME_MAX_BYTES)
        return false;
    /* words in front of an absolute path: "ctrun: cannot load libctrun: /opt/libctrun.so.0" */
    if (strcmp(row->after, no_library) == 0)
        for (const char *path;
             (path = memmem(at, (size_t)(end - at), ": /", strlen(": /")));)
            at = path + strlen(": ");
    *name = (struct name){at, (int)(end - at)};
    return true;
}

static const char *last_line(const char *text)
{
    size_t at = strlen(text);

    while (at > 0 && text[at - 1] == '\n')
        at--;
    while (at > 0 && text[at - 1] != '\n')
        at--;
    return text + at;
}

/* True when its output may tell why: it ended by itself, or is about to. */
static bool has_words(const struct ct_failure *failure)
{
    return failure->cause == CT_CAUSE_EXIT || failure->cause == CT_CAUSE_SIGNAL ||
           failure->cause == CT_CAUSE_RAISED;
}

static bool fits(const struct row *row, const struct ct_failure *failure,
                 const char *last_lines, struct name *name)
{
    if (row->cause != CT_CAUSE_NONE)
        return failure->cause == row->cause && failure->code == row->code;
    if (!has_words(failure))
        return false;
    if (row->is_last)
        return find_name(
            row, *failure->exception ? failure->exception : last_line(failure->text),
            name);
    return find_name(row, failure->text, name) || find_name(row, last_lines, name);
}

/* The exception first: other output may be about an error that the program recovered from. */
static int find_in_exception(const struct ct_failure *failure, struct name *name)
{
    for (int i = 0; *failure->exception && i < ROW_COUNT; i++)
        if (rows[i].cause == CT_CAUSE_NONE && !rows[i].is_last && has_words(failure) &&
            find_name(&rows[i], failure->exception, name))
            return i;
    return -1;
}

static int find(const struct ct_failure *failure, const char *last_lines,
                struct name *name)
{
    const int number = find_in_exception(failure, name);

    if (number >= 0)
        return number;
    *name = (struct name){"", 0};
    for (int i = 0; i < ROW_COUNT; i++)
        if (fits(&rows[i], failure, last_lines, name))
            return i;
    return -1;
}

/* Looks for rules of --failure-rules, in the exception first; -1: none. */
static int find_own(const struct ct_failure *failure, const char *last_lines)
{
    const char *const texts[] = {failure->exception, failure->text, last_lines};

    for (size_t t = 0; has_words(failure) && t < sizeof texts / sizeof *texts; t++)
        for (int i = 0; i < own_count; i++)
            if (strstr(texts[t], own_rules[i].words))
                return i;
    return -1;
}

int failure_hints_numbers(void)
{
    return own_count + ROW_COUNT;
}

static int find_own_in_line(const char *line)
{
    for (int i = 0; i < own_count; i++)
        if (strstr(line, own_rules[i].words))
            return i;
    return -1;
}

/* In the order of the table, causes before consequences. */
static int find_in_line(const char *line, struct name *name)
{
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].cause == CT_CAUSE_NONE && find_name(&rows[i], line, name))
            return i;
    return -1;
}

bool failure_hints_find_in_line(const char *line, struct failure_hint *out)
{
    const int own = find_own_in_line(line);
    struct name name;
    const int number = own < 0 ? find_in_line(line, &name) : -1;

    if (own >= 0) {
        *out = (struct failure_hint){.number = own, .remedy = own_rules[own].remedy};
        (void)ct_copy(out->likely, sizeof out->likely, own_rules[own].likely);
    } else if (number >= 0) {
        *out = (struct failure_hint){.number = own_count + number,
                                     .is_consequence = rows[number].is_last,
                                     .remedy = rows[number].remedy};
        (void)ct_format(out->likely, sizeof out->likely, "%s%.*s%s",
                        rows[number].likely, name.length, name.at, rows[number].rest);
    }
    return own >= 0 || number >= 0;
}

/* From NVIDIA's list of Xid errors: memory, NVLink, the bus, the GPU's own processor. Most other
 * Xid errors are caused by programs. */
static bool is_broken_xid(const char *line)
{
    static const int numbers[] = {48, 64, 74, 79, 92, 94, 95, 119, 120, 140};
    const char *at = strstr(line, "NVRM: Xid (");
    int number = 0;

    if (!at || !(at = strstr(at, "): ")) || sscanf(at, "): %5d", &number) != 1)
        return false;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (numbers[i] == number)
            return true;
    return false;
}

bool failure_hints_is_hardware(const char *line)
{
    for (int i = 0; i < own_count; i++)
        if (own_rules[i].is_hardware && strstr(line, own_rules[i].words))
            return true;
    for (int i = 0; i < ROW_COUNT; i++)
        if (rows[i].is_hardware && strstr(line, rows[i].before))
            return true;
    return is_broken_xid(line);
}

/* Adds the line itself as evidence. */
static bool add_hardware(struct ct_failure *failure, const char *text)
{
    char line[HARDWARE_LINE_MAX];
    size_t length;

    for (; *text; text += length + (text[length] != '\0')) {
        length = strcspn(text, "\n");
        (void)ct_format(line, sizeof line, "%.*s", (int)length, text); /* cut is fine */
        if (!failure_hints_is_hardware(line))
            continue;
        facts_add(failure, CT_FACT_HARDWARE, "%s", line + strspn(line, " \t"));
        return true;
    }
    return false;
}

int failure_hints_count(void)
{
    return ROW_COUNT;
}

int failure_hints_find(const struct ct_failure *failure, const char *last_lines)
{
    struct name name;

    return find(failure, last_lines, &name);
}

/* Of one instruction, which printed nothing: output is about something before. */
static bool is_fault(const struct ct_failure *failure)
{
    return failure->cause == CT_CAUSE_SIGNAL &&
           (failure->code == SIGSEGV || failure->code == SIGBUS ||
            failure->code == SIGFPE || failure->code == SIGILL);
}

/* The words are those that it ended with, and another rank is the cause: its exception, its last line,
 * or, as PyTorch's watchdog of NCCL ends, abort(). Earlier words may be about something that it
 * recovered from. */
static bool ended_of(const struct row *row, const struct ct_failure *failure)
{
    struct name name;

    if (row->victim == FAILURE_NO_VICTIM || failure->error != 0)
        return false;
    if (*failure->exception)
        return find_name(row, failure->exception, &name);
    return failure->cause == CT_CAUSE_SIGNAL
               ? failure->code == SIGABRT
               : find_name(row, last_line(failure->text), &name);
}

void failure_hints_add(struct ct_failure *failure, bool is_signal_named,
                       const char *last_lines)
{
    struct name name;
    const int own = find_own(failure, last_lines);
    const int number = find(failure, last_lines, &name);
    const struct row *row;

    if (has_words(failure) && !add_hardware(failure, failure->exception) &&
        !add_hardware(failure, failure->text))
        (void)add_hardware(failure, last_lines);
    if (own >= 0) {
        facts_add(failure, CT_FACT_LIKELY, "%s", own_rules[own].likely);
        if (own_rules[own].remedy)
            facts_add(failure, CT_FACT_DO, "%s", own_rules[own].remedy);
        return;
    }
    if (number < 0 || (is_signal_named &&
                       (rows[number].cause == CT_CAUSE_SIGNAL || is_fault(failure))))
        return;
    row = &rows[number];
    facts_add(failure, CT_FACT_LIKELY, "%s%.*s%s", row->likely, name.length, name.at,
              row->rest);
    if (row->remedy)
        facts_add(failure, CT_FACT_DO, "%s", row->remedy);
    if (ended_of(row, failure))
        failure->error = CTRUN_E_PEER_LOST;
}

/* The hint is the node's that saw the end, which may be another one: the texts are compared. */
enum failure_victim failure_hints_victim(const struct ct_failure *failure)
{
    const char *likely = ct_facts_find(&failure->facts, CT_FACT_LIKELY);

    for (int i = 0; likely && ct_failure_is_victim(failure) && i < ROW_COUNT; i++)
        if (rows[i].victim != FAILURE_NO_VICTIM && strcmp(rows[i].likely, likely) == 0)
            return rows[i].victim;
    return FAILURE_NO_VICTIM;
}
