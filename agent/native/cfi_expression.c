/* SPDX-License-Identifier: Apache-2.0 */
/* DWARF expressions, as far as call frame information has them: PLT entries and the C library's
 * return from a signal use them. Without jumps, so that every expression ends. */
#include "agent/native/cfi_private.h"

enum {
    STACK_MAX = 32,
    OP_DEREF = 0x06,
    OP_CONST1U = 0x08,
    OP_CONST8S = 0x0f,
    OP_CONSTU = 0x10,
    OP_CONSTS = 0x11,
    OP_DUP = 0x12,
    OP_DROP = 0x13,
    OP_OVER = 0x14,
    OP_SWAP = 0x16,
    OP_AND = 0x1a,
    OP_MINUS = 0x1c,
    OP_MUL = 0x1e,
    OP_NEG = 0x1f,
    OP_NOT = 0x20,
    OP_OR = 0x21,
    OP_PLUS = 0x22,
    OP_PLUS_UCONST = 0x23,
    OP_SHL = 0x24,
    OP_SHR = 0x25,
    OP_SHRA = 0x26,
    OP_XOR = 0x27,
    OP_EQ = 0x29,
    OP_GE = 0x2a,
    OP_GT = 0x2b,
    OP_LE = 0x2c,
    OP_LT = 0x2d,
    OP_NE = 0x2e,
    OP_LIT0 = 0x30,
    OP_LIT31 = 0x4f,
    OP_BREG0 = 0x70,
    OP_BREG31 = 0x8f
};

struct machine {
    struct cfi_bytes code;
    const struct cfi_frame *frame;
    const struct cfi_memory *memory;
    enum cfi_result result;
    int depth;
    uint64_t stack[STACK_MAX];
};

static void fail(struct machine *machine, enum cfi_result result)
{
    if (machine->result == CFI_CALLER)
        machine->result = result;
}

static void push(struct machine *machine, uint64_t value)
{
    if (machine->depth == STACK_MAX)
        fail(machine, CFI_UNREADABLE);
    else
        machine->stack[machine->depth++] = value;
}

static uint64_t pop(struct machine *machine)
{
    if (machine->depth > 0)
        return machine->stack[--machine->depth];
    fail(machine, CFI_UNREADABLE);
    return 0;
}

static void push_register(struct machine *machine, unsigned number)
{
    const int64_t offset = cfi_bytes_take_sleb(&machine->code);

    if (number >= CFI_REGISTERS || !(machine->frame->known & 1u << number))
        fail(machine, CFI_NO_REGISTER);
    else
        push(machine, machine->frame->values[number] + (uint64_t)offset);
}

static void read_memory(struct machine *machine)
{
    uint64_t word = 0;

    if (!machine->memory->read(machine->memory->context, pop(machine), &word))
        fail(machine, CFI_NO_MEMORY);
    push(machine, word);
}

static uint64_t compute(uint8_t op, uint64_t a, uint64_t b)
{
    const int64_t x = (int64_t)a, y = (int64_t)b;

    switch (op) {
    case OP_AND: return a & b;
    case OP_MINUS: return a - b;
    case OP_MUL: return a * b;
    case OP_OR: return a | b;
    case OP_PLUS: return a + b;
    case OP_SHL: return b < 64 ? a << b : 0;
    case OP_SHR: return b < 64 ? a >> b : 0;
    case OP_SHRA: return (uint64_t)(x >> (b < 64 ? b : 63));
    case OP_XOR: return a ^ b;
    case OP_EQ: return x == y;
    case OP_GE: return x >= y;
    case OP_GT: return x > y;
    case OP_LE: return x <= y;
    case OP_LT: return x < y;
    default: return x != y; /* OP_NE */
    }
}

static bool is_of_two(uint8_t op)
{
    return op == OP_AND || op == OP_MINUS || op == OP_MUL || op == OP_OR ||
           op == OP_PLUS || (op >= OP_SHL && op <= OP_XOR) ||
           (op >= OP_EQ && op <= OP_NE);
}

static void take_two(struct machine *machine, uint8_t op)
{
    const uint64_t b = pop(machine);

    push(machine, compute(op, pop(machine), b));
}

/* Constants of 1, 2, 4 and 8 bytes, each unsigned and signed. */
static void push_constant(struct machine *machine, uint8_t op)
{
    const size_t size = (size_t)1 << (op - OP_CONST1U) / 2;

    if ((op - OP_CONST1U) % 2)
        push(machine, (uint64_t)cfi_bytes_take_signed(&machine->code, size));
    else
        push(machine, cfi_bytes_take(&machine->code, size));
}

static void arrange(struct machine *machine, uint8_t op)
{
    const uint64_t top = pop(machine);
    uint64_t below;

    switch (op) {
    case OP_DUP:
        push(machine, top);
        push(machine, top);
        break;
    case OP_DROP: break;
    case OP_OVER:
        below = pop(machine);
        push(machine, below);
        push(machine, top);
        push(machine, below);
        break;
    case OP_SWAP:
        below = pop(machine);
        push(machine, top);
        push(machine, below);
        break;
    case OP_NEG: push(machine, 0 - top); break;
    case OP_NOT: push(machine, ~top); break;
    case OP_PLUS_UCONST:
        push(machine, top + cfi_bytes_take_uleb(&machine->code));
        break;
    default: fail(machine, CFI_UNREADABLE);
    }
}

static void run_one(struct machine *machine)
{
    const uint8_t op = (uint8_t)cfi_bytes_take(&machine->code, 1);

    if (op >= OP_LIT0 && op <= OP_LIT31)
        push(machine, op - OP_LIT0);
    else if (op >= OP_BREG0 && op <= OP_BREG31)
        push_register(machine, op - OP_BREG0);
    else if (op >= OP_CONST1U && op <= OP_CONST8S)
        push_constant(machine, op);
    else if (op == OP_CONSTU)
        push(machine, cfi_bytes_take_uleb(&machine->code));
    else if (op == OP_CONSTS)
        push(machine, (uint64_t)cfi_bytes_take_sleb(&machine->code));
    else if (op == OP_DEREF)
        read_memory(machine);
    else if (is_of_two(op))
        take_two(machine, op);
    else
        arrange(machine, op);
}

enum cfi_result cfi_expression_evaluate(uint64_t *out, struct cfi_bytes expression,
                                        const struct cfi_frame *frame,
                                        const struct cfi_memory *memory,
                                        const uint64_t *first)
{
    struct machine machine = {.code = expression, .frame = frame, .memory = memory};

    if (first)
        push(&machine, *first);
    while (machine.code.at < machine.code.end && machine.result == CFI_CALLER) {
        run_one(&machine);
        if (machine.code.is_bad)
            fail(&machine, CFI_UNREADABLE);
    }
    *out = machine.result == CFI_CALLER ? pop(&machine) : 0;
    return machine.result;
}
