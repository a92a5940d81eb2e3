/* SPDX-License-Identifier: Apache-2.0 */
/* libgcc's unwinder reads the tables that every program has (.eh_frame), not frame pointers, and
 * continues through the handler's own frame to the interrupted code. It takes no lock since glibc
 * 2.35 and gcc 12. It may crash on a damaged stack: its caller survives that.
 *
 * Where there is no code, a call has jumped to a wrong address: the return address is on the stack
 * (x86) or in a register (arm), and the frame pointers, if the program has any, continue from
 * there. */
#include <stdbool.h>
#include <ucontext.h>
#include <unistd.h>
#include <unwind.h>

#include "worker_sdk/client/crash.h"
#include "worker_sdk/wire/crash.h"

struct place {
    uintptr_t pc;
    uintptr_t stack;
    uintptr_t frame; /* the frame pointer, or another use of that register */
    uintptr_t link;  /* the return address if it is in a register; else 0 */
};

static void read_place(struct place *place, const ucontext_t *context)
{
#if defined(__x86_64__)
    place->pc = (uintptr_t)context->uc_mcontext.gregs[REG_RIP];
    place->stack = (uintptr_t)context->uc_mcontext.gregs[REG_RSP];
    place->frame = (uintptr_t)context->uc_mcontext.gregs[REG_RBP];
#elif defined(__aarch64__)
    place->pc = (uintptr_t)context->uc_mcontext.pc;
    place->stack = (uintptr_t)context->uc_mcontext.sp;
    place->frame = (uintptr_t)context->uc_mcontext.regs[29];
    place->link = (uintptr_t)context->uc_mcontext.regs[30];
#else
    (void)place; /* the handler's own frames are listed first then */
    (void)context;
#endif
}

static void add_frame(struct ct_crash *crash, uintptr_t pc)
{
    const uint32_t count = crash->frame_count;

    crash->frames[count] = pc;
    crash->frame_count = count + 1;
}

/* ---- By the tables ------------------------------------------------------------------- */

struct walk {
    struct ct_crash *crash;
    uintptr_t pc;
    bool is_behind; /* past the handler's own frames */
};

static _Unwind_Reason_Code on_frame(struct _Unwind_Context *context, void *data)
{
    struct walk *walk = data;
    const uintptr_t pc = _Unwind_GetIP(context);

    if (walk->is_behind && pc != 0)
        add_frame(walk->crash, pc);
    walk->is_behind |= pc == walk->pc;
    return walk->crash->frame_count < CT_CRASH_FRAMES_MAX ? _URC_NO_REASON
                                                          : _URC_END_OF_STACK;
}

static _Unwind_Reason_Code on_first_frame(struct _Unwind_Context *context, void *data)
{
    (void)context;
    (void)data;
    return _URC_END_OF_STACK;
}

void ct_crash_warm_up(void)
{
    (void)_Unwind_Backtrace(on_first_frame, NULL);
}

/* ---- By frame pointers --------------------------------------------------------------- */

/* Copies two words from memory that may not be mapped: the kernel reports that as it copies
 * them. */
static bool read_words(struct ct_crash *crash, int record, uintptr_t from)
{
    const off_t at = (off_t)((char *)crash->scratch - (char *)crash);

    return pwrite(record, (const void *)from, // NOLINT(performance-no-int-to-ptr)
                  sizeof crash->scratch, at) == (ssize_t)sizeof crash->scratch;
}

static void walk_pointers(struct ct_crash *crash, int record, const struct place *place)
{
    uintptr_t below = place->stack;
    uintptr_t at = place->frame;

    if (place->link)
        add_frame(crash, place->link);
    else if (read_words(crash, record, place->stack))
        add_frame(crash, (uintptr_t)crash->scratch[0]);
    while (crash->frame_count < CT_CRASH_FRAMES_MAX && at > below &&
           at % sizeof at == 0 && read_words(crash, record, at)) {
        add_frame(crash, (uintptr_t)crash->scratch[1]);
        below = at;
        at = (uintptr_t)crash->scratch[0];
    }
}

void ct_crash_walk(struct ct_crash *crash, int record, const void *context)
{
    struct walk walk = {.crash = crash};
    struct place place = {0};

    read_place(&place, context);
    crash->stack = place.stack;
    walk.pc = place.pc;
    walk.is_behind = place.pc == 0 && place.stack == 0; /* unknown: list all frames */
    if (!walk.is_behind)
        add_frame(crash, place.pc);
    (void)_Unwind_Backtrace(on_frame, &walk);
    if (crash->frame_count == 1)
        walk_pointers(crash, record, &place);
}
