/* SPDX-License-Identifier: Apache-2.0 */
/* The functions of tests/lib/fake_nccl.h over a real GPU, so that tests that were written for the fake also run on
 * the real libraries. Settings and counters of the fake are not looked at. CTRUN_TEST_ONLY names the one
 * test of the program that runs. Without a GPU the program ends with 77.
 *
 * A kernel of a test is a function of the host. Its stream raises a flag and waits for another; a thread sees
 * the first, runs the function on copies of the blocks that it asks for, writes back what it changed, and raises
 * the second. Both are operations on the stream's memory, which a graph can hold too. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tests/lib/fake_nccl.h"
#include "tests/lib/test.h"

enum {
    BLOCKS_MAX = 16,     /* of the device, for one kernel */
    LAUNCHES_MAX = 4096, /* of a process */
    WAIT_EQUAL = 1,      /* CU_STREAM_WAIT_VALUE_EQ */
    LOOK_US = 20,
    LATE_US = 100000, /* of fake_delay() */
    NO_GPU = 77
};

struct fake_nccl fake_nccl;

bool fake_counts(void)
{
    return false;
}

typedef unsigned long long device_at;
static CUresult (*wait_value)(cudaStream_t stream, device_at at, uint32_t value,
                              unsigned flags);
static CUresult (*write_value)(cudaStream_t stream, device_at at, uint32_t value,
                               unsigned flags);
static CUresult (*find_block)(device_at *base, size_t *bytes, device_at at);

static void must(bool is_good, const char *what)
{
    if (is_good)
        return;
    fprintf(stderr, "the GPU of the test: %s failed\n", what);
    abort();
}

/* Every rank is a host of its own for NCCL, which refuses two of one host on one GPU. */
static void name_host(void)
{
    char name[24];

    (void)snprintf(name, sizeof name, "rank-%d", (int)getpid());
    setenv("NCCL_HOSTID", name, 1);
}

/* No call of CUDA in this process: ranks are forked from it. */
__attribute__((constructor)) static void begin(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW);

    if (!driver || access("/dev/nvidia0", F_OK) < 0) {
        printf("skipped: no NVIDIA GPU on this machine\n");
        fflush(stdout);
        _exit(NO_GPU);
    }
    *(void **)&wait_value = dlsym(driver, "cuStreamWaitValue32_v2");
    *(void **)&write_value = dlsym(driver, "cuStreamWriteValue32_v2");
    *(void **)&find_block = dlsym(driver, "cuMemGetAddressRange_v2");
    must(wait_value && write_value && find_block, "dlsym()");
    setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32",
           1); /* a stream never waits for another */
    /* Code that is loaded later waits for the device, and keeps the thread below from copying. */
    setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0",
           0); /* a first call does not wait for the device */
    setenv("NCCL_MAX_NCHANNELS", "1", 0); /* a test opens many groups */
    setenv("NCCL_RAS_ENABLE", "0", 0);
    setenv("NCCL_MULTI_RANK_GPU_ENABLE", "1", 0); /* NCCL 2.30 and newer */
    name_host();
    pthread_atfork(NULL, NULL, name_host);
    if (getenv("CTRUN_TEST_ONLY"))
        cmocka_set_test_filter(getenv("CTRUN_TEST_ONLY"));
}

/* ---- Copies of the device's memory -------------------------------------------------------- */

struct block {
    device_at base;
    size_t bytes;
    unsigned char *now, *before; /* the kernel's copy; what was fetched */
};

static _Thread_local struct block blocks[BLOCKS_MAX];
static _Thread_local int block_count;
static _Thread_local bool in_kernel;

/* Memory of the host that the device can read and write. */
struct flags {
    _Atomic uint32_t asked, done;
};

/* Made before the first kernel: CUDA may wait for the whole device to make more. */
static struct flags *all_flags;
static atomic_int flags_used;
static cudaStream_t copies;
static pthread_mutex_t copies_lock = PTHREAD_MUTEX_INITIALIZER;

static void make_all(void)
{
    void *memory;

    must(cudaStreamCreateWithFlags(&copies, cudaStreamNonBlocking) == cudaSuccess &&
             cudaHostAlloc(&memory, LAUNCHES_MAX * sizeof *all_flags,
                           cudaHostAllocDefault) == cudaSuccess,
         "to make a stream and memory");
    memset(memory, 0, LAUNCHES_MAX * sizeof *all_flags);
    all_flags = memory;
}

static void make_once(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, make_all);
}

/* Both with copies_lock held. */
static void begin_move(void *to, const void *from, size_t bytes)
{
    must(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, copies) == cudaSuccess,
         "a copy");
}

static void end_moves(void)
{
    must(cudaStreamSynchronize(copies) == cudaSuccess, "a copy");
}

static struct block *fetch_block(device_at base, size_t bytes)
{
    struct block *block = &blocks[block_count++ % BLOCKS_MAX];
    const size_t room = (bytes + 3) / 4 * 4; /* whole words */

    must(!in_kernel || block_count <= BLOCKS_MAX, "a kernel with so many blocks");
    free(block->now);
    free(block->before);
    *block = (struct block){base, bytes, calloc(1, room), calloc(1, room)};
    must(block->now && block->before, "calloc()");
    make_once();
    pthread_mutex_lock(&copies_lock);
    begin_move(block->now, (void *)(uintptr_t)base, bytes);
    end_moves();
    pthread_mutex_unlock(&copies_lock);
    memcpy(block->before, block->now, bytes);
    return block;
}

void *fake_device(void *at)
{
    struct cudaPointerAttributes found = {.type = cudaMemoryTypeUnregistered};
    const device_at place = (uintptr_t)at;
    struct block *block = NULL;
    device_at base;
    size_t bytes;

    if (cudaPointerGetAttributes(&found, at) != cudaSuccess ||
        found.type != cudaMemoryTypeDevice)
        return NULL;
    must(find_block(&base, &bytes, place) == CUDA_SUCCESS, "cuMemGetAddressRange()");
    for (int i = 0; in_kernel && i < block_count; i++)
        if (blocks[i].base == base)
            block = &blocks[i];
    if (!block)
        block = fetch_block(base, bytes);
    return block->now + (place - base);
}

/* Only the words that changed, because other streams may write beside them. */
static void put_back(const struct block *block)
{
    const size_t words = block->bytes / sizeof(uint32_t);
    const size_t end = words * sizeof(uint32_t);
    const uint32_t *now = (const void *)block->now;
    const uint32_t *before = (const void *)block->before;

    for (size_t from = 0, to; from < words; from = to + 1) {
        for (to = from; to < words && now[to] != before[to];)
            to++;
        if (to > from)
            begin_move((uint32_t *)(uintptr_t)block->base + from, now + from,
                       (to - from) * sizeof *now);
    }
    if (memcmp(block->now + end, block->before + end, block->bytes - end) != 0)
        begin_move((void *)(uintptr_t)(block->base + end), block->now + end,
                   block->bytes - end);
}

static void put_blocks_back(void)
{
    pthread_mutex_lock(&copies_lock);
    for (int i = 0; i < block_count; i++)
        put_back(&blocks[i]);
    end_moves();
    pthread_mutex_unlock(&copies_lock);
    block_count = 0;
}

/* ---- Kernels ------------------------------------------------------------------------------ */

struct launch {
    struct flags *flags;
    fake_kernel *kernel;
    void *context;
    size_t
        bytes; /* of the context, for one that runs at each launch of a graph; 0: it runs once */
    int device;
};

/* Another thread may be capturing: what this one does meanwhile is not part of that. */
static void be_outside_captures(void)
{
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;

    must(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess, "a capture mode");
}

static void pause_us(long us)
{
    const struct timespec time = {.tv_nsec = us * 1000};

    (void)nanosleep(&time, NULL);
}

static void *run_kernel(void *context)
{
    struct launch *launch = context;
    void *copy;

    must(cudaSetDevice(launch->device) == cudaSuccess, "cudaSetDevice()");
    be_outside_captures();
    in_kernel = true;
    do {
        while (!launch->flags->asked)
            pause_us(LOOK_US); /* the test has a deadline */
        launch->flags->asked = 0;
        copy = launch->context;
        if (launch->bytes) {
            must((copy = malloc(launch->bytes)), "malloc()");
            memcpy(copy, launch->context, launch->bytes);
        }
        launch->kernel(copy);
        put_blocks_back();
        launch->flags->done = 1;
    } while (launch->bytes);
    return NULL; /* the flags stay: the stream may read them later */
}

static void start(void *stream, struct launch launch)
{
    struct launch *kept = malloc(sizeof *kept);
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    const int place = atomic_fetch_add(&flags_used, 1);
    pthread_t thread;
    device_at asked, done;

    must(kept && place < LAUNCHES_MAX, "memory for a launch");
    must(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess, "a capture mode");
    make_once();
    must(cudaGetDevice(&launch.device) == cudaSuccess, "cudaGetDevice()");
    launch.flags = &all_flags[place];
    *kept = launch;
    must(pthread_create(&thread, NULL, run_kernel, kept) == 0, "pthread_create()");
    pthread_detach(thread);
    asked = (uintptr_t)&launch.flags->asked;
    done = (uintptr_t)&launch.flags->done;
    must(write_value(stream, asked, 1, 0) == CUDA_SUCCESS &&
             wait_value(stream, done, 1, WAIT_EQUAL) == CUDA_SUCCESS &&
             write_value(stream, done, 0, 0) == CUDA_SUCCESS,
         "an operation on the memory of a stream");
    must(cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess, "a capture mode");
}

void fake_launch(void *stream, fake_kernel *kernel, void *context)
{
    start(stream, (struct launch){.kernel = kernel, .context = context});
}

void fake_launch_copy(void *stream, fake_kernel *kernel, void *context, size_t bytes)
{
    start(stream,
          (struct launch){.kernel = kernel, .context = context, .bytes = bytes});
}

static void be_late(void *context)
{
    pause_us(LATE_US);
}

void fake_delay(void *stream, int steps)
{
    fake_launch(stream, be_late, NULL);
}

int fake_fail_at(int n)
{
    return 0;
}
